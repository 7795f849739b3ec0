// PeerView: another host of a run that the user's mpirun or srun started, as the watcher there reports it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/supervise/remote_view.h"

namespace dstrain {

class PeerView final : public RemoteView {
 public:
  // `name`: for messages. `silence_s`: seconds without a message after which the host counts as lost. Until connect()
  // the host has no reports and no faults.
  PeerView(std::string name, const std::vector<int>& ranks, int64_t silence_s)
      : RemoteView(std::move(name), ranks, "watcher", silence_s * 1'000'000'000) {}

  // Uses this connection to the watcher from now on.
  void connect(std::unique_ptr<SocketChannel> connection);
  bool connected() const { return connection_ != nullptr; }
  // Returns whether the host is lost though its connection has not ended, as where its network is cut.
  bool is_silent() const { return !lost().empty() && !has_ended_; }
  // Orders the watcher to end its ranks with `status`.
  void order_end(int status);

  void update(bool closely) override;
  // Every rank there receives the signals itself.
  void request_stop(int) override {}
  void request_trace() override {}
  void kill_all() override;
  void end() override;
  bool ended() const override;

 private:
  void handle(const std::string&, const nlohmann::json&) override {}
  bool connection_ended() override;
  void mark_lost(const std::string& why, Loss loss) override;

  std::unique_ptr<SocketChannel> connection_;
  bool has_ended_ = false;  // the connection
};

}  // namespace dstrain
