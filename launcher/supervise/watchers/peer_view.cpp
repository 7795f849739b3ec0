#include "launcher/supervise/watchers/peer_view.h"

#include <algorithm>
#include <utility>

#include "launcher/hosts/messages.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// A pause between two looks that only a suspension of this process explains.
constexpr int64_t kSuspended = 2'000'000'000;

}  // namespace

PeerView::PeerView(std::string name, std::vector<int> ranks, int64_t silence_s)
    : name_(std::move(name)), silence_s_(silence_s), reports_(ranks.size()) {
  for (size_t i = 0; i < ranks.size(); ++i) reports_[i].rank = ranks[i];
}

void PeerView::connect(std::unique_ptr<WatchLine> line) {
  line_ = std::move(line);
  last_word_ns_ = monotonic_ns();
}

void PeerView::look(bool) {
  if (!line_ || !lost_.empty()) return;
  const int64_t now = monotonic_ns();
  if (last_look_ns_ != 0 && now - last_look_ns_ > kSuspended) last_word_ns_ = now;
  last_look_ns_ = now;
  const bool open = line_->channel.receive();
  while (const auto message = line_->channel.take()) {
    last_word_ns_ = now;
    try {
      take(*message);
    } catch (const nlohmann::json::exception& e) {
      return lose(fmt::format("its watcher cannot be understood: {}", e.what()));
    }
  }
  if (!open) return lose("the connection to its watcher ended");
  if (now - last_word_ns_ > silence_s_ * 1'000'000'000)
    return lose(fmt::format("no word from it for {} s", silence_s_));
  if (now - last_sent_ns_ >= kHeartbeat) {
    last_sent_ns_ = now;
    line_->channel.send({{"do", "alive"}});
  }
  line_->channel.flush();
}

void PeerView::take(const nlohmann::json& m) {
  if (m.at("say").get<std::string>() != "ranks") return;
  const int64_t now = monotonic_ns();
  std::vector<RankReport> reports;
  for (const auto& rank : m.at("ranks")) reports.push_back(rank_report_of(rank, now));
  if (!std::ranges::equal(reports, reports_, {}, &RankReport::rank, &RankReport::rank))
    return lose("its watcher reports other ranks than its own");
  reports_ = std::move(reports);
  stopped_ = m.at("stopped").get<int>();
  kills_ = m.at("kills").get<int64_t>();
}

bool PeerView::all_gone() const {
  return std::ranges::all_of(reports_, &RankReport::gone);
}

void PeerView::lose(const std::string& why) {
  if (all_gone()) return;  // it has nothing left to watch
  lost_ = why;
  lost_since_ = last_word_ns_;
}

void PeerView::order_end(int status) {
  if (line_) line_->channel.send({{"do", "order_end"}, {"status", status}});
}

void PeerView::kill_all() {
  if (line_) line_->channel.send({{"do", "kill"}});
}

void PeerView::end() {
  if (line_) line_->channel.send({{"do", "end"}});
}

bool PeerView::ended() const {
  return !line_ || !lost_.empty() || line_->channel.unsent() == 0;
}

}  // namespace dstrain
