#include "launcher/supervise/culprit.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "launcher/output/output_lines.h"
#include "launcher/placement/machine.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Kind = Culprit::Kind;

struct Candidate {
  const HostReport* host;
  const RankReport* rank;  // null: the host itself
  Kind kind;
  int64_t since;
};

bool finished(const RankReport& r) {
  return r.gone || r.state == RankState::done;
}

// Those that are in trouble for reasons of their own.
std::vector<Candidate> own_troubles(std::span<const HostReport> hosts, const Patience& patience,
                                    int64_t now) {
  std::vector<Candidate> found;
  for (const HostReport& host : hosts) {
    if (!host.lost.empty()) found.push_back({&host, nullptr, Kind::host_lost, host.lost_ns});
    const StarterReport& starter = host.starter;
    if (starter.suspended_since != 0 && now - starter.suspended_since >= patience.suspended)
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
      else if (!finished(r) && r.suspended_since != 0 &&
               now - r.suspended_since >= patience.suspended)
        found.push_back({&host, &r, Kind::suspended, r.suspended_since});
    }
  }
  return found;
}

// When a rank last did anything, or began.
int64_t last_progress(std::span<const HostReport> hosts) {
  int64_t last = 0;
  for (const HostReport& host : hosts)
    for (const RankReport& r : host.ranks) last = std::max(last, r.moved_ns);
  return last;
}

// Whether the start has stood still for too long, and this rank is why: it is not there, or on a host where
// somebody waits for a connection.
bool start_stands(const HostReport& host, const RankReport& r, int64_t progress,
                  const Patience& patience, int64_t now) {
  if (progress == 0 || now - progress < patience.start) return false;
  const bool unconnected =
      host.starter.awaits_since != 0 && now - host.starter.awaits_since >= patience.start;
  return !r.joined() || (r.state == RankState::starting && unconnected);
}

// Those that wait, or complain about another rank, for too long.
std::vector<Candidate> other_troubles(std::span<const HostReport> hosts, const Patience& patience,
                                      int64_t now) {
  std::vector<Candidate> found;
  const int64_t progress = last_progress(hosts);
  for (const HostReport& host : hosts)
    for (const RankReport& r : host.ranks) {
      if (r.failure_kind == FailureKind::peer)
        found.push_back({&host, &r, Kind::failed, r.failure_ns});
      else if (r.moved_ns != 0 && !finished(r) && !r.failed() &&
               (now - r.moved_ns >= patience.instruction ||
                start_stands(host, r, progress, patience, now)))
        found.push_back({&host, &r, Kind::hung, r.moved_ns});
    }
  return found;
}

// By how much times of different hosts' reports may be out of order. Shorter than the second that mpirun
// leaves ranks before it kills those that stay behind one that failed.
constexpr int64_t kDisorder = 500'000'000;

const Candidate& earliest(const std::vector<Candidate>& all) {
  return *std::min_element(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.since < b.since;
  });
}

// Whether `failed` may be in trouble because `gone` vanished, whatever its words are. One that vanishes did
// not notice others.
bool may_follow_from(const Candidate& failed, const Candidate& gone) {
  return failed.kind == Kind::failed && gone.kind == Kind::vanished &&
         gone.since - failed.since <= kDisorder;
}

// Ranks end with what started them, while that outlives a rank by the second in which mpirun stops the
// others: the start of the trouble where the ranks of its host ended at the same moment.
const Candidate* starter_that_began(const std::vector<Candidate>& own) {
  for (const Candidate& c : own)
    if (c.kind == Kind::starter_ended && std::ranges::all_of(own, [&c](const Candidate& other) {
          return (other.kind != Kind::vanished && other.kind != Kind::failed) ||
                 (other.host == c.host ? c.since - other.since <= kDisorder / 2
                                       : c.since - other.since <= kDisorder);
        }))
      return &c;
  return nullptr;
}

// Who began it, among those in trouble of their own.
const Candidate& beginner(const std::vector<Candidate>& own) {
  if (const Candidate* starter = starter_that_began(own)) return *starter;
  const Candidate* first = &earliest(own);
  for (const Candidate& c : own)
    if (may_follow_from(*first, c) ||
        (first->kind == Kind::vanished && c.kind == Kind::vanished && c.since < first->since))
      first = &c;
  return *first;
}

std::vector<Culprit::Waiting> waiting_for(std::span<const HostReport> hosts,
                                          const std::set<int>& culprits) {
  std::map<std::string, std::vector<int>> by_place;
  for (const HostReport& host : hosts)
    for (const RankReport& r : host.ranks)
      if (culprits.contains(r.waits_for) && !culprits.contains(r.rank))
        by_place[r.waits_in].push_back(r.rank);
  std::vector<Culprit::Waiting> waiting;
  for (auto& [place, ranks] : by_place) {
    std::sort(ranks.begin(), ranks.end());
    waiting.push_back({place, ranks});
  }
  return waiting;
}

// "at step 5, in linear blocks.0"
std::string place_of(const RankReport& r) {
  if (r.step == 0) return "before the first step";
  if (r.state == RankState::saving) return fmt::format("while saving at step {}", r.step);
  return r.instruction.empty() ? fmt::format("at step {}", r.step)
                               : fmt::format("at step {}, in {}", r.step, r.instruction);
}

// What is known of why ranks of a host do not begin.
std::string start_text(const StarterReport& starter) {
  if (!starter.awaits.empty())
    return fmt::format("; a process of the run there waits for an answer from {}", starter.awaits);
  if (starter.pid != 0)
    return fmt::format("; mpirun's daemon there (orted, pid {}) lives", starter.pid);
  return "";
}

std::string waits_text(const Culprit& culprit) {
  std::string text;
  for (const Culprit::Waiting& group : culprit.waiting)
    text += fmt::format("{}rank{} {} waited for it{}", text.empty() ? " (" : ", ",
                        group.ranks.size() == 1 ? "" : "s", rank_ranges(group.ranks),
                        group.in.empty() ? "" : " in " + group.in);
  return text.empty() ? "" : text + ")";
}

}  // namespace

bool any_trouble(std::span<const HostReport> hosts, const Patience& patience, int64_t now) {
  return !own_troubles(hosts, patience, now).empty() ||
         !other_troubles(hosts, patience, now).empty();
}

bool only_complaints(std::span<const HostReport> hosts, const Patience& patience, int64_t now) {
  const auto others = other_troubles(hosts, patience, now);
  return own_troubles(hosts, patience, now).empty() && !others.empty() &&
         std::ranges::all_of(others, [](const Candidate& c) { return c.kind == Kind::failed; });
}

std::optional<Culprit> find_culprit(std::span<const HostReport> hosts, const Patience& patience,
                                    int64_t now) {
  std::map<int, std::pair<const HostReport*, const RankReport*>> by_rank;
  for (const HostReport& host : hosts)
    for (const RankReport& r : host.ranks) by_rank[r.rank] = {&host, &r};

  const std::vector<Candidate> own = own_troubles(hosts, patience, now);
  const std::vector<Candidate> others = other_troubles(hosts, patience, now);
  if (own.empty() && others.empty()) return std::nullopt;
  Candidate chosen = own.empty() ? earliest(others) : beginner(own);
  // Up the chain of waits: among ranks in trouble of their own; where there are none, among all.
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

  Culprit culprit;
  culprit.kind = chosen.kind;
  culprit.host = chosen.host->name;
  culprit.lost = chosen.host->lost;
  culprit.loss = chosen.host->loss;
  culprit.starter = chosen.host->starter;
  culprit.seconds = static_cast<double>(now - chosen.since) * 1e-9;
  std::set<int> ranks;
  if (chosen.rank != nullptr) {
    culprit.rank = *chosen.rank;
    ranks.insert(chosen.rank->rank);
  } else {
    for (const RankReport& r : chosen.host->ranks) ranks.insert(r.rank);
  }
  culprit.waiting = waiting_for(hosts, ranks);
  return culprit;
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

std::string describe(const Culprit& culprit, const std::string& ending) {
  const std::string waits = waits_text(culprit);
  if (culprit.kind == Kind::host_lost && culprit.loss == Loss::agent)
    return fmt::format("the agent of dstrain on {} {}{}", culprit.host, culprit.lost, waits);
  if (culprit.kind == Kind::host_lost && culprit.loss == Loss::own_network)
    return fmt::format("this machine lost its network ({}), so that {} does not answer: {}",
                       host_name(), culprit.host, culprit.lost);
  if (culprit.kind == Kind::host_lost)
    return fmt::format("{} was lost: {}{}", culprit.host, culprit.lost, waits);
  if (culprit.kind == Kind::starter_ended || culprit.kind == Kind::starter_stopped)
    return fmt::format("mpirun's daemon on {} (orted, pid {}) {}{}", culprit.host,
                       culprit.starter.pid,
                       culprit.kind == Kind::starter_ended ? "ended before its ranks were done"
                                                           : "is stopped (as by SIGSTOP)",
                       waits);
  const RankReport& rank = culprit.rank;
  const std::string name = name_of(rank, culprit.host);
  const std::string place = place_of(rank) + waits;
  switch (culprit.kind) {
    case Kind::vanished:
      return fmt::format("{} {} {}", name, ending, place);
    case Kind::suspended:
      return fmt::format("{} is stopped (as by SIGSTOP) {}", name, place);
    case Kind::hung:
      if (!rank.joined())
        return fmt::format("{} has not begun within {:.3g} s{}{}", name, culprit.seconds, waits,
                           start_text(culprit.starter));
      if (!culprit.starter.awaits.empty())
        return fmt::format("{} has not moved for {:.3g} s {}{}", name, culprit.seconds, place,
                           start_text(culprit.starter));
      return fmt::format("{} has not moved for {:.3g} s {} (dstrain.timeout_s is the limit)", name,
                         culprit.seconds, place);
    default:
      if (rank.failure_kind == FailureKind::user)
        return culprit.host.empty() ? rank.failure
                                    : fmt::format("{}: {}", culprit.host, rank.failure);
      return fmt::format("{} failed {}: {}", name, place, rank.failure);
  }
}

}  // namespace dstrain
