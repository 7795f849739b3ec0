// PeerView: another host of a run that the user's mpirun or srun started, as the watcher there reports it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/connection/line_channel.h"
#include "launcher/connection/silence.h"
#include "launcher/supervise/host_view.h"

namespace dstrain {

class PeerView final : public HostView {
 public:
  // `name`: for messages. `silence_s`: seconds without a message after which the host counts as lost. Until connect()
  // the host has no reports and no faults.
  PeerView(std::string name, std::vector<int> ranks, int64_t silence_s);

  // Uses this connection to the watcher from now on.
  void connect(std::unique_ptr<SocketChannel> connection);
  bool connected() const { return connection_ != nullptr; }
  // Orders the watcher to end its ranks with `status`.
  void order_end(int status);

  const std::string& name() const override { return name_; }
  void update(bool closely) override;
  std::span<const RankReport> ranks() const override { return reports_; }
  const std::string& lost() const override { return lost_; }
  int64_t lost_since() const override { return lost_since_; }
  // Every rank there receives the signals itself.
  void request_stop(int) override {}
  void request_trace() override {}
  void kill_all() override;
  int stopped() const override { return stopped_; }
  int64_t out_of_memory_kills() const override { return kills_; }
  void end() override;
  bool ended() const override;

 private:
  void handle(const nlohmann::json& message);
  void mark_lost(const std::string& why);
  bool all_gone() const;

  std::string name_;
  int64_t silence_s_;
  std::vector<RankReport> reports_;
  std::unique_ptr<SocketChannel> connection_;
  std::string lost_;
  int64_t lost_since_ = 0;
  int64_t last_received_ns_ = 0, last_sent_ns_ = 0;
  Silence silence_{0};
  int stopped_ = 0;
  int64_t kills_ = 0;
};

}  // namespace dstrain
