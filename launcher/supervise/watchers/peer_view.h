// PeerView: another host of a run that the user's mpirun or srun started, through the watcher there. Stands
// on the channel that the watchers speak over, and on messages.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/hosts/channel.h"
#include "launcher/ranks/child.h"
#include "launcher/supervise/host_view.h"

namespace dstrain {

// A connection and what is spoken over it.
struct WatchLine {
  explicit WatchLine(Descriptor connection)
      : socket(std::move(connection)), channel(socket.get(), socket.get()) {}
  Descriptor socket;
  LineChannel channel;
};

class PeerView final : public HostView {
 public:
  // `name`: for messages. `silence_s`: without a word, until the host is taken for lost. Until connect() nothing is
  // known of the host, and nothing is wrong with it.
  PeerView(std::string name, std::vector<int> ranks, int64_t silence_s);

  void connect(std::unique_ptr<WatchLine> line);
  bool connected() const { return line_ != nullptr; }
  // Tells the watcher there to end its ranks with `status`.
  void order_end(int status);

  const std::string& name() const override { return name_; }
  void look(bool closely) override;
  std::span<const RankReport> ranks() const override { return reports_; }
  const std::string& lost() const override { return lost_; }
  int64_t lost_since() const override { return lost_since_; }
  void request_stop(int) override {}  // every rank has a signal handler of its own there
  void kill_all() override;
  int stopped() const override { return stopped_; }
  int64_t out_of_memory_kills() const override { return kills_; }
  void end() override;
  bool ended() const override;

 private:
  void take(const nlohmann::json& message);
  void lose(const std::string& why);
  bool all_gone() const;

  std::string name_;
  int64_t silence_s_;
  std::vector<RankReport> reports_;
  std::unique_ptr<WatchLine> line_;
  std::string lost_;
  int64_t lost_since_ = 0;
  int64_t last_word_ns_ = 0, last_sent_ns_ = 0, last_look_ns_ = 0;
  int stopped_ = 0;
  int64_t kills_ = 0;
};

}  // namespace dstrain
