#include "launcher/supervise/watchers/peer_view.h"

#include <algorithm>
#include <utility>

namespace dstrain {

void PeerView::connect(std::unique_ptr<SocketChannel> connection) {
  connection_ = std::move(connection);
  count_silence();
}

void PeerView::update(bool) {
  if (connection_ && !over()) exchange(connection_->channel);
}

bool PeerView::connection_ended() {
  has_ended_ = true;
  mark_lost("the connection to its watcher ended", Loss::host);
  return true;
}

void PeerView::mark_lost(const std::string& why, Loss loss) {
  // A watcher ends after its last rank.
  if (!std::ranges::all_of(ranks(), &RankReport::gone)) RemoteView::mark_lost(why, loss);
}

void PeerView::order_end(int status) {
  if (connection_) connection_->channel.send({{"do", "order_end"}, {"status", status}});
}

void PeerView::kill_all() {
  if (connection_) connection_->channel.send({{"do", "kill"}});
}

void PeerView::end() {
  if (connection_) connection_->channel.send({{"do", "end"}});
}

bool PeerView::ended() const {
  return !connection_ || !lost().empty() || connection_->channel.unsent() == 0;
}

}  // namespace dstrain
