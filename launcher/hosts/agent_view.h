// AgentView: a host of the run, as the agent on it reports it. The launching process and an agent exchange JSON objects
// over the agent's standard input and output. A message to the agent has "do", an answer or report has "say". Times are
// sent as ages, because clocks differ between hosts.
//
//   do                                   say
//   hello {version, run, silence_ns}     hello {version, program, host, identity, time, memory, memory_source, cores,
//                                        open_files, processes, processes_source, addresses, temporary {directory,
//                                        free, problem}}, then alive once a second
//   input {words, directory, ranks}      input {error} or {files: [{path, hash}]}
//   open_mpi                             open_mpi {orted, version}
//   probe {output, write}                probe {seen} or {error}
//   probed
//   listen {key, port, address}          listening {port}
//   meet {peers: [{name, port, addresses}]}   met {failed: [{name, why}]}
//   watch {world, ranks}                 watching; then ranks {ranks, starter, stopped, kills, lack} after every change
//                                        and once a second, and output {rank, error, text}
//   alive, at least once a second        fault {text}, after which the agent ends
//                                        stop {signal, count}: the agent has received that many stop signals
//                                        trace: the agent has received SIGUSR2
//                                        killed {signal}: the agent was killed, as its guard says
//   stop {signal}, trace, kill
//   end                                  bye, when nothing of the run is left
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/connection/network.h"
#include "launcher/process/child.h"
#include "launcher/supervise/remote_view.h"

namespace dstrain {

// The connection to the agent on one host, and what the agent has reported. Invariant: the command that started the
// agent (ssh) does not outlive this object.
class AgentView final : public RemoteView {
 public:
  // `name`: of the host, for messages. `command`: starts the agent, by ssh or directly if the host is this machine.
  // `ranks`: those of the host. `silence_ns`: after which the host counts as lost.
  AgentView(std::string name, const std::vector<std::string>& command,
            const std::vector<int>& ranks, int64_t silence_ns = kLongestSilence);

  // Sends a question. The answer is the next message whose "say" is `answer`.
  void ask(const nlohmann::json& question, const std::string& answer);
  // Returns the answer to the last question if it has arrived, once.
  std::optional<nlohmann::json> next_answer();
  // Returns the last line that the command wrote to standard error.
  std::string error_line() const;

  void update(bool closely) override;
  const StarterReport& starter() const override { return starter_; }
  const std::string& lack() const override { return lack_; }
  void request_stop(int signal) override;
  void request_trace() override;
  void kill_all() override;
  void forward_output(const OutputSink& sink) override;
  void end() override;
  bool ended() const override {
    return over() && !guard_clears_ && (!cleaner_ || cleaner_->ended());
  }

 private:
  void handle(const std::string& what, const nlohmann::json& message) override;
  bool connection_ended() override;
  void mark_lost(const std::string& why, Loss loss) override;
  Loss loss_in_silence() const override;
  std::string fault_hint() const override {
    return " (start-up files of shells there must print nothing)";
  }
  void read_errors();

  std::vector<std::string> command_;
  Child child_;
  LineChannel channel_;
  StarterReport starter_;
  std::string lack_;
  std::string errors_;         // the last part of what the command wrote to standard error
  bool guard_clears_ = false;  // the guard of a killed agent clears the host, and has not ended
  bool cut_off_ = false;       // the connection ended, without a word of the agent's guard
  nlohmann::json hello_;       // as it was sent to the agent
  // An agent that clears the host in the place of one that was killed together with its guard.
  std::unique_ptr<AgentView> cleaner_;
  std::vector<InterfaceAddress> addresses_;  // of this machine when the agent was started
  std::string awaited_answer_;               // its "say"
  std::optional<nlohmann::json> answer_;
  struct Output {
    int rank;
    StandardStream stream;
    std::string text;
  };
  std::vector<Output> output_;
  bool ending_ = false;
};

// Sends each host that is not lost its question, if that is not null, and waits until all have answered or are lost, or
// `seconds` have passed. Calls `meanwhile` repeatedly. Returns the answers; null for hosts without one.
std::vector<nlohmann::json> ask_all(
    std::span<const std::unique_ptr<AgentView>> hosts, const std::string& answer, double seconds,
    const std::function<nlohmann::json(size_t host)>& question,
    const std::function<void()>& meanwhile = [] {});

}  // namespace dstrain
