#include "launcher/supervise/rank_watch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
// A pause between two updates that only a suspension of this process explains, and the time after it without timeouts.
constexpr int64_t kLongPause = 1 * kSecond;
constexpr int64_t kGracePeriod = 4 * kSecond;

}  // namespace

RankWatch::RankWatch(std::vector<std::unique_ptr<HostView>> hosts, const Timeouts& timeouts)
    : hosts_(std::move(hosts)), timeouts_(timeouts) {}

void RankWatch::update() {
  const int64_t now = monotonic_ns();
  if (last_update_ns_ != 0 && now - last_update_ns_ > kLongPause)
    lenient_until_ns_ = now + kGracePeriod;
  last_update_ns_ = now;
  for (const auto& host : hosts_) host->update(false);
}

std::vector<HostReport> RankWatch::reports() const {
  std::vector<HostReport> all;
  for (const auto& host : hosts_)
    all.push_back({host->name(), host->lost(), host->lost_since(), host->ranks(), host->starter(),
                   host->loss()});
  return all;
}

Timeouts RankWatch::timeouts() const {
  constexpr int64_t endless = std::numeric_limits<int64_t>::max();
  return last_update_ns_ < lenient_until_ns_ ? Timeouts{endless, endless, endless} : timeouts_;
}

bool RankWatch::has_fault() const {
  return any_fault(reports(), timeouts(), monotonic_ns());
}

bool RankWatch::only_peer_failures() const {
  return dstrain::only_peer_failures(reports(), timeouts(), monotonic_ns());
}

void RankWatch::choose_root_cause() {
  if (root_cause_) return;
  for (const auto& host : hosts_) host->update(true);
  root_cause_ = find_root_cause(reports(), timeouts(), monotonic_ns());
}

bool RankWatch::has_joined(int rank) const {
  for (const auto& host : hosts_)
    for (const RankReport& r : host->ranks())
      if (r.rank == rank) return r.joined();
  return false;
}

std::optional<int> RankWatch::wait_status_of(int rank) const {
  for (const auto& host : hosts_)
    for (const RankReport& r : host->ranks())
      if (r.rank == rank) return r.wait_status;
  return std::nullopt;
}

bool RankWatch::all_running() const {
  return std::ranges::all_of(hosts_, [](const auto& host) {
    return std::ranges::all_of(host->ranks(), [](const RankReport& r) {
      return r.state != RankState::absent && r.state != RankState::starting;
    });
  });
}

bool RankWatch::any_alive() const {
  return std::ranges::any_of(hosts_, [](const auto& host) {
    return host->lost().empty() && std::ranges::any_of(host->ranks(), &RankReport::alive);
  });
}

void RankWatch::kill_all() const {
  for (const auto& host : hosts_) host->kill_all();
}

void RankWatch::request_stop(int signal) const {
  for (const auto& host : hosts_) host->request_stop(signal);
}

void RankWatch::request_trace() const {
  for (const auto& host : hosts_) host->request_trace();
}

void RankWatch::forward_output(const HostView::OutputSink& sink) const {
  for (const auto& host : hosts_) host->forward_output(sink);
}

void RankWatch::end() const {
  for (const auto& host : hosts_) host->end();
}

bool RankWatch::ended() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host->ended(); });
}

std::string RankWatch::first_unfinished() const {
  for (const auto& host : hosts_)
    for (const RankReport& r : host->ranks())
      if (r.state != RankState::done) return name_of(r, host->name());
  return "";
}

int RankWatch::stopped() const {
  for (const auto& host : hosts_)
    if (host->stopped() != 0) return host->stopped();
  return 0;
}

std::vector<std::string> RankWatch::lost_hosts() const {
  std::vector<std::string> names;
  for (const auto& host : hosts_)
    if (!host->lost().empty() && host->loss() != Loss::own_network) names.push_back(host->name());
  return names;
}

int RankWatch::exit_status() const {
  const bool user = root_cause_ && root_cause_->kind == RootCause::Kind::failed &&
                    root_cause_->rank.failure_kind == FailureKind::user;
  return user ? 1 : 2;
}

std::string RankWatch::report(const std::string& ending) const {
  check(root_cause_.has_value(), "a report without a root cause");
  const std::optional<int> status = wait_status_of(root_cause_->rank.rank);
  std::string text = describe(*root_cause_, status ? ending_text(*status) : ending);
  for (const auto& host : hosts_)
    if (root_cause_vanished() && host->name() == root_cause_->host &&
        host->out_of_memory_kills() > 0)
      text += "; the kernel killed a process at that time because memory ran out";
  return root_cause_vanished() ? text + lacks() : text;
}

bool RankWatch::any_out_of_memory() const {
  return std::ranges::any_of(hosts_,
                             [](const auto& host) { return host->out_of_memory_kills() > 0; });
}

std::string RankWatch::lacks() const {
  std::string text;
  for (const auto& host : hosts_)
    if (!host->lack().empty()) text += fmt::format("; on {}, {}", host->name(), host->lack());
  return text;
}

}  // namespace dstrain
