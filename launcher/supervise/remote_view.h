// RemoteView: a host of the run as a process there, an agent or a watcher, reports it over a channel. Each end sends
// something at least once a second. A host from which nothing arrives for too long is lost.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/connection/line_channel.h"
#include "launcher/connection/silence.h"
#include "launcher/supervise/host_view.h"

namespace dstrain {

class RemoteView : public HostView {
 public:
  const std::string& name() const override { return name_; }
  std::span<const RankReport> ranks() const override { return reports_; }
  const std::string& lost() const override { return lost_; }
  int64_t lost_since() const override { return lost_since_; }
  Loss loss() const override { return loss_; }
  int stopped() const override { return stopped_; }
  int64_t out_of_memory_kills() const override { return kills_; }

 protected:
  // `name`: of the host, for messages. `process`: what reports it, for messages. `silence_ns`: after which the host counts
  // as lost.
  RemoteView(std::string name, const std::vector<int>& ranks, std::string process,
             int64_t silence_ns);

  // Silence counts from now on, or from the first message.
  void count_silence();
  // Takes what has arrived, notices a loss, and sends what is due.
  void exchange(LineChannel& channel);
  // Nothing more is exchanged.
  bool over() const { return over_; }
  void set_over() { over_ = true; }
  int64_t most_silence_ns() const { return most_silence_ns_; }
  virtual void mark_lost(const std::string& why, Loss loss);

 private:
  // Takes a message beyond the reports of ranks. `what` is its "say".
  virtual void handle(const std::string& what, const nlohmann::json& message) = 0;
  // Called when the connection has ended. Returns false if the process there may still be heard of.
  virtual bool connection_ended() = 0;
  // Returns what is lost if nothing arrives.
  virtual Loss loss_in_silence() const { return Loss::host; }
  // Returns what to do if messages are malformed, for the end of a message.
  virtual std::string fault_hint() const { return ""; }
  void take(const nlohmann::json& message);

  std::string name_, process_;
  std::vector<RankReport> reports_;
  std::string lost_;
  Loss loss_ = Loss::host;
  int64_t lost_since_ = 0;
  int stopped_ = 0;
  int64_t kills_ = 0;
  int64_t most_silence_ns_;
  Silence silence_;
  bool silence_counts_ = false;
  int64_t last_received_ns_, last_sent_ns_ = 0;
  bool over_ = false;
};

}  // namespace dstrain
