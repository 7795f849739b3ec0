#include "launcher/supervise/root_cause.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "launcher/placement/machine.h"
#include "launcher/placement/ranges_text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Kind = RootCause::Kind;

struct Candidate {
  const HostReport* host;
  const RankReport* rank;  // null: the host itself
  Kind kind;
  int64_t since;
};

// Returns the ranks and hosts that have a fault of their own.
std::vector<Candidate> primary_faults(std::span<const HostReport> hosts, const Timeouts& timeouts,
                                      int64_t now) {
  std::vector<Candidate> found;
  for (const HostReport& host : hosts) {
    if (!host.lost.empty()) found.push_back({&host, nullptr, Kind::host_lost, host.lost_ns});
    const StarterReport& starter = host.starter;
    if (starter.suspended_since != 0 && now - starter.suspended_since >= timeouts.suspended)
      found.push_back({&host, nullptr, Kind::starter_stopped, starter.suspended_since});
    if (starter.gone && !std::ranges::all_of(host.ranks, [](const RankReport& r) {
          return r.state == RankState::done;
        }))
      found.push_back({&host, nullptr, Kind::starter_ended, starter.alive_ns});
    for (const RankReport& r : host.ranks) {
      if (r.failed() && r.failure_kind != FailureKind::peer)
        found.push_back({&host, &r, Kind::failed, r.failure_ns});
      else if (r.vanished())
        found.push_back({&host, &r, Kind::vanished, r.alive_ns});
      else if (!r.gone && r.suspended_since != 0 && now - r.suspended_since >= timeouts.suspended)
        found.push_back({&host, &r, Kind::suspended, r.suspended_since});
    }
  }
  return found;
}

// Returns when any rank last made progress or joined.
int64_t last_progress(std::span<const HostReport> hosts) {
  int64_t last = 0;
  for (const HostReport& host : hosts)
    for (const RankReport& r : host.ranks) last = std::max(last, r.moved_ns);
  return last;
}

// Returns whether the start makes no progress, and this rank may be why: it has not joined, or it is on a host where a
// process waits for a connection.
bool start_hangs(const HostReport& host, const RankReport& r, int64_t progress,
                 const Timeouts& timeouts, int64_t now) {
  if (progress == 0 || now - progress < timeouts.start) return false;
  const bool unconnected =
      host.starter.awaits_since != 0 && now - host.starter.awaits_since >= timeouts.start;
  return !r.joined() || (r.state == RankState::starting && unconnected);
}

// Returns the ranks that have failed because of another one, or have not moved for too long.
std::vector<Candidate> secondary_faults(std::span<const HostReport> hosts, const Timeouts& timeouts,
                                        int64_t now) {
  std::vector<Candidate> found;
  const int64_t progress = last_progress(hosts);
  for (const HostReport& host : hosts)
    for (const RankReport& r : host.ranks) {
      if (r.failure_kind == FailureKind::peer)
        found.push_back({&host, &r, Kind::failed, r.failure_ns});
      else if (r.moved_ns != 0 && !r.gone && !r.failed() &&
               (now - r.moved_ns >= timeouts.instruction ||
                start_hangs(host, r, progress, timeouts, now)))
        found.push_back({&host, &r, Kind::hung, r.moved_ns});
    }
  return found;
}

// By how much the times in reports of different hosts may be out of order. Less than the second after which mpirun
// kills the other ranks when one has failed.
constexpr int64_t kDisorder = 500'000'000;

const Candidate& earliest(const std::vector<Candidate>& all) {
  return *std::min_element(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.since < b.since;
  });
}

// Returns whether `failed` may have failed because `gone` vanished, whatever its error says. The opposite is
// impossible: a rank that fails because of another one does not vanish.
bool may_follow_from(const Candidate& failed, const Candidate& gone) {
  return failed.kind == Kind::failed && gone.kind == Kind::vanished &&
         gone.since - failed.since <= kDisorder;
}

// Returns whether a fault of another kind may follow from the end of a starter. Ranks end at the same moment as their
// starter, while a starter outlives a rank by the second in which mpirun stops the others, unless all of its ranks end.
bool may_follow_from_starter(const Candidate& other, const Candidate& starter) {
  const int64_t lead = starter.since - other.since;
  if (other.kind == Kind::host_lost) return lead <= 0;
  if (other.kind == Kind::vanished)
    return lead <= (other.host == starter.host ? kDisorder / 2 : kDisorder);
  if (other.kind != Kind::failed) return true;
  return lead <= (other.host == starter.host ? 0 : kDisorder);  // one clock: it failed first
}

// Returns the starter whose end is the root cause, if any.
const Candidate* starter_at_fault(const std::vector<Candidate>& own) {
  for (const Candidate& c : own)
    if (c.kind == Kind::starter_ended && std::ranges::all_of(own, [&c](const Candidate& other) {
          return may_follow_from_starter(other, c);
        }))
      return &c;
  return nullptr;
}

// Returns the agent whose end is the root cause, if any. Its guard ends all processes of the run on its host, and mpirun
// then those on the others, while no agent ends because of anything else.
const Candidate* agent_at_fault(const std::vector<Candidate>& own) {
  const Candidate* first = nullptr;
  for (const Candidate& c : own)
    if (c.kind == Kind::host_lost && c.host->loss == Loss::agent &&
        (first == nullptr || c.since < first->since))
      first = &c;
  const bool leads = first != nullptr && std::ranges::all_of(own, [first](const Candidate& other) {
                       return first->since - other.since <= kDisorder;
                     });
  return leads ? first : nullptr;
}

// Returns the first of the primary faults.
const Candidate& first_fault(const std::vector<Candidate>& own) {
  if (const Candidate* agent = agent_at_fault(own)) return *agent;
  if (const Candidate* starter = starter_at_fault(own)) return *starter;
  const Candidate* first = &earliest(own);
  for (const Candidate& c : own)
    if (may_follow_from(*first, c) ||
        (first->kind == Kind::vanished && c.kind == Kind::vanished && c.since < first->since))
      first = &c;
  return *first;
}

std::vector<RootCause::Waiting> waiting_for(std::span<const HostReport> hosts,
                                            const std::set<int>& root_causes) {
  std::map<std::string, std::vector<int>> by_place;
  for (const HostReport& host : hosts)
    for (const RankReport& r : host.ranks)
      if (root_causes.contains(r.waits_for) && !root_causes.contains(r.rank))
        by_place[r.waits_in].push_back(r.rank);
  std::vector<RootCause::Waiting> waiting;
  for (auto& [place, ranks] : by_place) {
    std::sort(ranks.begin(), ranks.end());
    waiting.push_back({place, ranks});
  }
  return waiting;
}

// Returns for example "at step 5, in linear blocks.0".
std::string place_of(const RankReport& r) {
  if (r.step == 0) return "before the first step";
  if (r.state == RankState::saving) return fmt::format("while saving at step {}", r.step);
  return r.instruction.empty() ? fmt::format("at step {}", r.step)
                               : fmt::format("at step {}, in {}", r.step, r.instruction);
}

// Returns what is known about why ranks of a host do not start.
std::string start_text(const StarterReport& starter) {
  if (!starter.awaits.empty())
    return fmt::format("; a process of the run there waits for an answer from {}", starter.awaits);
  if (starter.pid != 0)
    return fmt::format("; mpirun's daemon there (orted, pid {}) lives", starter.pid);
  return "";
}

std::string waits_text(const RootCause& root_cause) {
  std::string text;
  for (const RootCause::Waiting& group : root_cause.waiting)
    text += fmt::format("{}rank{} {} waited for it{}", text.empty() ? " (" : ", ",
                        group.ranks.size() == 1 ? "" : "s", ranges_text(group.ranks),
                        group.in.empty() ? "" : " in " + group.in);
  return text.empty() ? "" : text + ")";
}

}  // namespace

bool any_fault(std::span<const HostReport> hosts, const Timeouts& timeouts, int64_t now) {
  return !primary_faults(hosts, timeouts, now).empty() ||
         !secondary_faults(hosts, timeouts, now).empty();
}

bool only_peer_failures(std::span<const HostReport> hosts, const Timeouts& timeouts, int64_t now) {
  const auto others = secondary_faults(hosts, timeouts, now);
  return primary_faults(hosts, timeouts, now).empty() && !others.empty() &&
         std::ranges::all_of(others, [](const Candidate& c) { return c.kind == Kind::failed; });
}

std::optional<RootCause> find_root_cause(std::span<const HostReport> hosts,
                                         const Timeouts& timeouts, int64_t now) {
  std::map<int, std::pair<const HostReport*, const RankReport*>> by_rank;
  for (const HostReport& host : hosts)
    for (const RankReport& r : host.ranks) by_rank[r.rank] = {&host, &r};

  const std::vector<Candidate> own = primary_faults(hosts, timeouts, now);
  const std::vector<Candidate> others = secondary_faults(hosts, timeouts, now);
  if (own.empty() && others.empty()) return std::nullopt;
  Candidate chosen = own.empty() ? earliest(others) : first_fault(own);
  // Follows the chain of waits: through primary faults, or through all ranks if there are none.
  std::set<int> visited;
  while (chosen.rank != nullptr && visited.insert(chosen.rank->rank).second) {
    const int next = chosen.rank->waits_for;
    const auto place = by_rank.find(next);
    if (place == by_rank.end() || visited.contains(next)) break;
    const auto [host, rank] = place->second;
    const auto find = [next](const std::vector<Candidate>& list) {
      return std::find_if(list.begin(), list.end(), [next](const Candidate& c) {
        return c.rank != nullptr && c.rank->rank == next;
      });
    };
    if (const auto i = find(own); i != own.end() && !may_follow_from(*i, chosen))
      chosen = *i;
    else if (!own.empty())
      break;
    else if (const auto other = find(others); other != others.end())
      chosen = *other;
    else
      chosen = {host, rank, rank->suspended_since != 0 ? Kind::suspended : Kind::hung,
                rank->suspended_since != 0 ? rank->suspended_since : rank->moved_ns};
  }

  RootCause root_cause;
  root_cause.kind = chosen.kind;
  root_cause.host = chosen.host->name;
  root_cause.lost = chosen.host->lost;
  root_cause.loss = chosen.host->loss;
  root_cause.starter = chosen.host->starter;
  root_cause.seconds = static_cast<double>(now - chosen.since) * 1e-9;
  std::set<int> ranks;
  if (chosen.rank != nullptr) {
    root_cause.rank = *chosen.rank;
    ranks.insert(chosen.rank->rank);
  } else {
    for (const RankReport& r : chosen.host->ranks) ranks.insert(r.rank);
  }
  root_cause.waiting = waiting_for(hosts, ranks);
  return root_cause;
}

std::string name_of(const RankReport& rank, const std::string& host) {
  const std::string on = host.empty() ? "" : " on " + host;
  if (rank.pid == 0) return fmt::format("rank {}{}", rank.rank, on);
  return fmt::format("rank {} (pid {}{})", rank.rank, rank.pid, on);
}

std::string ending_text(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)));
  return fmt::format("ended by itself with exit status {}", WEXITSTATUS(wait_status));
}

std::string describe(const RootCause& root_cause, const std::string& ending) {
  const std::string waits = waits_text(root_cause);
  if (root_cause.kind == Kind::host_lost && root_cause.loss == Loss::agent)
    return fmt::format("the agent of dstrain on {} {}{}", root_cause.host, root_cause.lost, waits);
  if (root_cause.kind == Kind::host_lost && root_cause.loss == Loss::own_network)
    return fmt::format("this machine lost its network ({}), so that {} does not answer: {}",
                       host_name(), root_cause.host, root_cause.lost);
  if (root_cause.kind == Kind::host_lost)
    return fmt::format("{} was lost: {}{}", root_cause.host, root_cause.lost, waits);
  if (root_cause.kind == Kind::starter_ended || root_cause.kind == Kind::starter_stopped)
    return fmt::format("mpirun's daemon on {} (orted, pid {}) {}{}", root_cause.host,
                       root_cause.starter.pid,
                       root_cause.kind == Kind::starter_ended ? "ended before its ranks were done"
                                                              : "is stopped (as by SIGSTOP)",
                       waits);
  const RankReport& rank = root_cause.rank;
  const std::string name = name_of(rank, root_cause.host);
  const std::string place = place_of(rank) + waits;
  switch (root_cause.kind) {
    case Kind::vanished:
      return fmt::format("{} {} {}", name, ending, place);
    case Kind::suspended:
      return fmt::format("{} is stopped (as by SIGSTOP) {}", name, place);
    case Kind::hung:
      if (!rank.joined())
        return fmt::format("{} has not begun within {:.3g} s{}{}", name, root_cause.seconds, waits,
                           start_text(root_cause.starter));
      if (!root_cause.starter.awaits.empty())
        return fmt::format("{} has not moved for {:.3g} s {}{}", name, root_cause.seconds, place,
                           start_text(root_cause.starter));
      return fmt::format("{} has not moved for {:.3g} s {} (dstrain.timeout_s is the limit)", name,
                         root_cause.seconds, place);
    default:
      if (rank.failure_kind == FailureKind::user)
        return root_cause.host.empty() ? rank.failure
                                       : fmt::format("{}: {}", root_cause.host, rank.failure);
      return fmt::format("{} failed {}: {}", name, place, rank.failure);
  }
}

}  // namespace dstrain
