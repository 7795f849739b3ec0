// AgentView: a host of the run through the agent on it. Stands on channel.h, messages.h and silence.h. The agent is
// started by ssh, or directly where the host is this machine. Invariant: no ssh outlives its view.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/hosts/channel.h"
#include "launcher/hosts/messages.h"
#include "launcher/hosts/network.h"
#include "launcher/hosts/silence.h"
#include "launcher/ranks/child.h"
#include "launcher/supervise/host_view.h"

namespace dstrain {

class AgentView final : public HostView {
 public:
  // `name`: for messages. `command`: starts the agent. `ranks`: those of the host. `silence_ns`: after which
  // the host is taken for lost.
  AgentView(std::string name, const std::vector<std::string>& command, std::vector<int> ranks,
            int64_t silence_ns = kLongestSilence);

  // Sends a question; the answer is the next message that says `answer`.
  void ask(const nlohmann::json& question, const std::string& answer);
  // The answer to the last question, once it has come.
  std::optional<nlohmann::json> take_answer();
  // What the command that started the agent wrote on standard error, one line.
  std::string complaint() const;

  const std::string& name() const override { return name_; }
  void look(bool closely) override;
  std::span<const RankReport> ranks() const override { return reports_; }
  const StarterReport& starter() const override { return starter_; }
  const std::string& lost() const override { return lost_; }
  int64_t lost_since() const override { return lost_since_; }
  Loss loss() const override { return loss_; }
  void request_stop(int signal) override;
  void kill_all() override;
  int stopped() const override { return stopped_; }
  int64_t out_of_memory_kills() const override { return kills_; }
  void take_output(const OutputTaker& take) override;
  void end() override;
  bool ended() const override { return ended_; }

 private:
  void read();
  void take_message(const nlohmann::json& message);
  void lose(const std::string& why, Loss loss = Loss::host);
  Loss host_or_network() const;

  std::string name_;
  std::vector<int> own_ranks_;
  Child child_;
  LineChannel channel_;
  std::vector<RankReport> reports_;
  StarterReport starter_;
  std::string errors_;  // what came on standard error
  std::string lost_;
  Loss loss_ = Loss::host;
  std::vector<InterfaceAddress> addresses_;  // of this machine, at the start
  int64_t lost_since_ = 0;
  int stopped_ = 0;
  int64_t kills_ = 0;
  int64_t most_silence_ns_;
  Silence silence_;           // of the agent
  int64_t last_word_ns_;      // from it
  int64_t last_sent_ns_ = 0;  // to it
  std::string awaited_;       // what the answer to the last question says
  std::optional<nlohmann::json> answer_;
  struct Output {
    int rank;
    StandardStream stream;
    std::string text;
  };
  std::vector<Output> output_;
  bool answered_ = false;  // the agent has said anything yet
  bool ending_ = false, ended_ = false;
};

// Sends each host that is not lost its question (null: none) and waits until all have answered or are
// lost, or `seconds` are over; calls `meanwhile` again and again. Null: no answer.
std::vector<nlohmann::json> ask_all(
    std::span<const std::unique_ptr<AgentView>> hosts, const std::string& answer, double seconds,
    const std::function<nlohmann::json(size_t host)>& question,
    const std::function<void()>& meanwhile = [] {});

}  // namespace dstrain
