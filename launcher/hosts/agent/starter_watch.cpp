#include "launcher/hosts/agent/starter_watch.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/hosts/agent/tcp_table.h"
#include "launcher/process/process_state.h"
#include "launcher/ranks/run_processes.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kSearchEvery = 1'000'000'000;
constexpr int64_t kStateEvery = 500'000'000;

std::string program_of(pid_t process) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", process)) >> std::ws, name);
  return name;
}

bool lives_as_daemon(pid_t process) {
  return program_of(process) == "orted" && PeerProcess(process).alive();
}

// Returns whether the process is a daemon that lives, and not a fork of one that is about to become a rank.
bool is_daemon(pid_t process) {
  return lives_as_daemon(process) && program_of(process_state(process).parent) != "orted";
}

}  // namespace

void StarterWatch::update(std::span<const RankReport> ranks) {
  const int64_t now = monotonic_ns();
  const auto joined = std::ranges::count_if(ranks, &RankReport::joined);
  const bool begun = std::ranges::all_of(ranks, [](const RankReport& r) {
    return r.joined() && r.state != RankState::absent && r.state != RankState::starting;
  });
  if (begun && found_) {
    report_.awaits.clear();
    report_.awaits_since = 0;
  } else if (joined != joined_ || now - last_search_ns_ >= kSearchEvery) {
    joined_ = joined;
    last_search_ns_ = now;
    search(ranks, now);
  }
  if (report_.pid != 0 && !report_.gone) {
    if (!process_.alive()) {
      // The process that ssh starts forks and ends: the fork is the daemon that stays.
      const int ended = report_.pid;
      take_first(processes_of_run(run_), is_daemon);
      report_.gone = report_.pid == ended;
    }
    report_.alive_ns = report_.gone ? last_update_ns_ : now;
    if (now - last_state_ns_ >= kStateEvery) {
      last_state_ns_ = now;
      if (report_.gone || !process_.stopped())
        report_.suspended_since = 0;
      else if (report_.suspended_since == 0)
        report_.suspended_since = now;
    }
  }
  last_update_ns_ = now;
}

void StarterWatch::search(std::span<const RankReport> ranks, int64_t now) {
  std::vector<pid_t> processes;
  std::vector<pid_t> starters;
  for (const RankReport& r : ranks) {
    if (!r.joined()) continue;
    found_ = true;  // on mpirun's own host the parent is mpirun, and there is no daemon
    if (r.gone) continue;
    processes.push_back(r.pid);
    starters.push_back(process_state(r.pid).parent);
  }
  // The parent of a rank is the daemon, though the process that forked the daemon may not have ended yet.
  if (found_)
    take_first(starters, lives_as_daemon);
  else if (report_.pid == 0)
    take_first(processes_of_run(run_), is_daemon);
  if (report_.pid != 0) processes.push_back(report_.pid);
  const std::string awaits = awaited_peer(processes);
  if (awaits != report_.awaits) report_.awaits_since = awaits.empty() ? 0 : now;
  report_.awaits = awaits;
}

void StarterWatch::take_first(std::span<const pid_t> processes, bool (*is_right)(pid_t)) {
  const auto daemon = std::ranges::find_if(processes, is_right);
  if (daemon == processes.end() || *daemon == report_.pid) return;
  report_.pid = *daemon;
  report_.gone = false;
  report_.suspended_since = 0;
  process_ = PeerProcess(*daemon);
}

}  // namespace dstrain
