#include "launcher/supervise/rank_reporter.h"

#include "launcher/connection/silence.h"
#include "launcher/supervise/report_messages.h"
#include "runtime/core/error.h"

namespace dstrain {

void RankReporter::report(LineChannel& channel, bool listens, const ReportAddition& addition) {
  const int64_t now = monotonic_ns();
  view_.update(false);
  const std::string state = summary() + addition.state;
  if (state == sent_ && (!listens || now - sent_ns_ < kHeartbeat)) return;
  sent_ = state;
  sent_ns_ = now;
  view_.update(true);
  nlohmann::json list = nlohmann::json::array();
  for (const RankReport& rank : view_.ranks()) list.push_back(to_message(rank, now));
  nlohmann::json message = {{"say", "ranks"},
                            {"ranks", list},
                            {"stopped", view_.stopped()},
                            {"kills", view_.out_of_memory_kills()}};
  if (!addition.members.is_null()) message.update(addition.members);
  if (before_sending_) before_sending_();
  channel.send(message);
}

// Returns the part of the state of which a change is sent at once.
std::string RankReporter::summary() const {
  std::string text;
  for (const RankReport& r : view_.ranks())
    text += fmt::format("{} {} {} {} {} {};", r.pid, r.gone, r.wait_status.has_value(),
                        static_cast<int>(r.state), static_cast<int>(r.failure_kind),
                        r.suspended_since != 0);
  return text;
}

}  // namespace dstrain
