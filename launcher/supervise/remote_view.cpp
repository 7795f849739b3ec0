#include "launcher/supervise/remote_view.h"

#include <algorithm>
#include <utility>

#include "launcher/supervise/report_messages.h"
#include "runtime/core/error.h"

namespace dstrain {

RemoteView::RemoteView(std::string name, const std::vector<int>& ranks, std::string process,
                       int64_t silence_ns)
    : name_(std::move(name)),
      process_(std::move(process)),
      reports_(ranks.size()),
      most_silence_ns_(silence_ns),
      silence_(monotonic_ns()),
      last_received_ns_(monotonic_ns()) {
  for (size_t i = 0; i < ranks.size(); ++i) reports_[i].rank = ranks[i];
}

void RemoteView::count_silence() {
  last_received_ns_ = monotonic_ns();
  silence_ = Silence(last_received_ns_);
  silence_counts_ = true;
}

void RemoteView::exchange(LineChannel& channel) {
  const int64_t now = monotonic_ns();
  silence_.update(now);
  const bool open = channel.receive([this](const nlohmann::json& message) {
    last_received_ns_ = monotonic_ns();
    silence_.heard();
    silence_counts_ = true;
    take(message);
  });
  if (over_) return;
  if (!channel.fault().empty())
    return mark_lost(
        fmt::format("its {} cannot be understood: {}{}", process_, channel.fault(), fault_hint()),
        Loss::host);
  if (!open && connection_ended()) return;
  if (silence_counts_ && silence_.ns() > most_silence_ns_)
    return mark_lost(fmt::format("no word from it for {} s", most_silence_ns_ / 1'000'000'000),
                     loss_in_silence());
  if (now - last_sent_ns_ >= kHeartbeat) {
    last_sent_ns_ = now;
    channel.send({{"do", "alive"}});
  }
  channel.flush();
}

void RemoteView::take(const nlohmann::json& m) {
  const auto what = m.at("say").get<std::string>();
  if (what == "ranks") {
    const int64_t now = monotonic_ns();
    std::vector<RankReport> reports;
    for (const auto& rank : m.at("ranks")) reports.push_back(rank_report_of(rank, now));
    if (!std::ranges::equal(reports, reports_, {}, &RankReport::rank, &RankReport::rank))
      return mark_lost(fmt::format("its {} reports other ranks than its own", process_),
                       Loss::host);
    reports_ = std::move(reports);
    stopped_ = m.at("stopped").get<int>();
    kills_ = m.at("kills").get<int64_t>();
  }
  handle(what, m);
}

void RemoteView::mark_lost(const std::string& why, Loss loss) {
  if (std::exchange(over_, true)) return;
  lost_ = why;
  loss_ = loss;
  lost_since_ = std::min(last_received_ns_, monotonic_ns());
}

}  // namespace dstrain
