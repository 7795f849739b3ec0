#include "launcher/supervise/watchers/peer_view.h"

#include <algorithm>
#include <utility>

#include "launcher/supervise/report_messages.h"
#include "runtime/core/error.h"

namespace dstrain {
PeerView::PeerView(std::string name, std::vector<int> ranks, int64_t silence_s)
    : name_(std::move(name)), silence_s_(silence_s), reports_(ranks.size()) {
  for (size_t i = 0; i < ranks.size(); ++i) reports_[i].rank = ranks[i];
}

void PeerView::connect(std::unique_ptr<SocketChannel> connection) {
  connection_ = std::move(connection);
  last_received_ns_ = monotonic_ns();
  silence_ = Silence(last_received_ns_);
}

void PeerView::update(bool) {
  if (!connection_ || !lost_.empty()) return;
  const int64_t now = monotonic_ns();
  silence_.update(now);
  const bool open = connection_->channel.receive([&](const nlohmann::json& message) {
    last_received_ns_ = now;
    silence_.heard();
    handle(message);
  });
  if (const std::string& fault = connection_->channel.fault(); !fault.empty())
    return mark_lost("its watcher cannot be understood: " + fault);
  if (!open) return mark_lost("the connection to its watcher ended");
  if (silence_.ns() > silence_s_ * 1'000'000'000)
    return mark_lost(fmt::format("no word from it for {} s", silence_s_));
  if (now - last_sent_ns_ >= kHeartbeat) {
    last_sent_ns_ = now;
    connection_->channel.send({{"do", "alive"}});
  }
  connection_->channel.flush();
}

void PeerView::handle(const nlohmann::json& m) {
  if (m.at("say").get<std::string>() != "ranks") return;
  const int64_t now = monotonic_ns();
  std::vector<RankReport> reports;
  for (const auto& rank : m.at("ranks")) reports.push_back(rank_report_of(rank, now));
  if (!std::ranges::equal(reports, reports_, {}, &RankReport::rank, &RankReport::rank))
    return mark_lost("its watcher reports other ranks than its own");
  reports_ = std::move(reports);
  stopped_ = m.at("stopped").get<int>();
  kills_ = m.at("kills").get<int64_t>();
}

bool PeerView::all_gone() const {
  return std::ranges::all_of(reports_, &RankReport::gone);
}

void PeerView::mark_lost(const std::string& why) {
  if (all_gone()) return;  // it has nothing left to watch
  lost_ = why;
  lost_since_ = last_received_ns_;
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
  return !connection_ || !lost_.empty() || connection_->channel.unsent() == 0;
}

}  // namespace dstrain
