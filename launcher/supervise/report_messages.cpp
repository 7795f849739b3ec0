#include "launcher/supervise/report_messages.h"

#include <algorithm>

#include "launcher/connection/line_channel.h"

namespace dstrain {
namespace {

// Returns the age of a time, or -1 if the time is 0, which means "never".
int64_t age(int64_t time, int64_t now) {
  return time == 0 ? -1 : std::max<int64_t>(0, now - time);
}

int64_t time_of(const nlohmann::json& age, int64_t now) {
  const auto ns = age.get<int64_t>();
  return ns < 0 ? 0 : now - ns;
}

}  // namespace

nlohmann::json to_message(const RankReport& r, int64_t now) {
  return {{"rank", r.rank},
          {"pid", r.pid},
          {"gone", r.gone},
          {"wait_status", r.wait_status.value_or(-1)},
          {"state", static_cast<int>(r.state)},
          {"step", r.step},
          {"instruction", to_json_text(r.instruction)},
          {"waits_for", r.waits_for},
          {"waits_in", to_json_text(r.waits_in)},
          {"moved", age(r.moved_ns, now)},
          {"alive", age(r.alive_ns, now)},
          {"suspended", age(r.suspended_since, now)},
          {"kind", static_cast<int>(r.failure_kind)},
          {"failed", age(r.failure_ns, now)},
          {"failure", to_json_text(r.failure)}};
}

nlohmann::json to_message(const StarterReport& r, int64_t now) {
  return {{"pid", r.pid},
          {"gone", r.gone},
          {"alive", age(r.alive_ns, now)},
          {"suspended", age(r.suspended_since, now)},
          {"awaits", r.awaits},
          {"awaited", age(r.awaits_since, now)}};
}

StarterReport starter_report_of(const nlohmann::json& m, int64_t now) {
  StarterReport r;
  r.pid = m.at("pid").get<int>();
  r.gone = m.at("gone").get<bool>();
  r.alive_ns = time_of(m.at("alive"), now);
  r.suspended_since = time_of(m.at("suspended"), now);
  r.awaits = m.at("awaits").get<std::string>();
  r.awaits_since = time_of(m.at("awaited"), now);
  return r;
}

RankReport rank_report_of(const nlohmann::json& m, int64_t now) {
  RankReport r;
  r.rank = m.at("rank").get<int>();
  r.pid = m.at("pid").get<int>();
  r.gone = m.at("gone").get<bool>();
  if (const int status = m.at("wait_status").get<int>(); status >= 0) r.wait_status = status;
  r.state = static_cast<RankState>(m.at("state").get<int>());
  r.step = m.at("step").get<int64_t>();
  r.instruction = from_json_text(m.at("instruction").get<std::string>());
  r.waits_for = m.at("waits_for").get<int>();
  r.waits_in = from_json_text(m.at("waits_in").get<std::string>());
  r.moved_ns = time_of(m.at("moved"), now);
  r.alive_ns = time_of(m.at("alive"), now);
  r.suspended_since = time_of(m.at("suspended"), now);
  r.failure_kind = static_cast<FailureKind>(m.at("kind").get<int>());
  r.failure_ns = time_of(m.at("failed"), now);
  r.failure = from_json_text(m.at("failure").get<std::string>());
  return r;
}

}  // namespace dstrain
