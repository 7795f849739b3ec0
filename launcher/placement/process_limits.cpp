#include "launcher/placement/process_limits.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

#include "launcher/placement/system_numbers.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/files/cgroup.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Returns the processes and threads of the whole machine, from "0.1 0.2 0.3 RUNNING/ALL LAST".
int64_t all_threads(const fs::path& root) {
  std::ifstream in(root / "proc/loadavg");
  std::string word;
  for (int i = 0; i < 4; ++i) in >> word;
  const size_t slash = word.find('/');
  int64_t all = kUnlimited;
  if (in && slash != std::string::npos)
    std::from_chars(word.data() + slash + 1, word.data() + word.size(), all);
  return all;
}

// Returns the processes and threads of a user.
int64_t threads_of(uid_t user, const fs::path& root) {
  int64_t all = 0;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "proc", none)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream status(entry.path() / "status");  // may be gone
    bool own = false;
    for (std::string line; std::getline(status, line);) {
      std::istringstream words(line);
      std::string key;
      int64_t value = 0;
      words >> key >> value;
      if (key == "Uid:") own = value == static_cast<int64_t>(user);
      if (key == "Threads:" && own) all += value;
    }
  }
  return all;
}

}  // namespace

FreeProcesses free_processes(int64_t most, uid_t user, const fs::path& root) {
  FreeProcesses free;
  // The kernel does not hold root to its limit.
  if (most != kUnlimited && user != 0) {
    // To read all of /proc takes long where there are many processes, and few users come near their limit.
    const int64_t all = all_threads(root);
    const int64_t there = all < most / 2 ? all : threads_of(user, root);
    free = {std::max<int64_t>(most - there, 0),
            fmt::format("ulimit -u is {}, and this user has {}", most, there)};
  }
  for (const CgroupDirectory& group : cgroup_directories(root, "pids")) {
    const auto limit = system_number(group.path / "pids.max");
    const auto there = system_number(group.path / "pids.current");
    if (!limit || !there || *limit - *there >= free.count) continue;
    free = {std::max<int64_t>(*limit - *there, 0),
            fmt::format("{} is {}, and {} are there", (group.path / "pids.max").string(), *limit,
                        *there)};
  }
  return free;
}

ProcessLimits process_limits() {
  return {resource_limit(RLIMIT_NOFILE), free_processes(resource_limit(RLIMIT_NPROC), ::getuid())};
}

ProcessNeeds process_needs(int64_t ranks, int64_t threads, int64_t hosts) {
  constexpr int64_t kFiles = 64, kFilesForEach = 7;  // pipes, sockets, libraries, shared memory
  constexpr int64_t kProcesses = 8;      // launching process, starter, agent, and their threads
  constexpr int64_t kThreadsOfRank = 4;  // that communicate, move tensors and wait for signals
  return {.open_files = kFiles + kFilesForEach * (ranks + hosts),
          .processes = kProcesses + ranks * (threads + kThreadsOfRank) + hosts};
}

std::vector<ProcessLack> lacks(const ProcessLimits& limits, const ProcessNeeds& needs,
                               std::string_view where) {
  std::vector<ProcessLack> all;
  if (limits.open_files < needs.open_files)
    all.push_back(
        {"files", fmt::format("a process may open {} files {}, and needs {}: raise the "
                              "limit (ulimit -n {}, or /etc/security/limits.conf)",
                              limits.open_files, where, needs.open_files, needs.open_files)});
  if (limits.processes.count < needs.processes)
    all.push_back(
        {"processes",
         fmt::format("the run needs {} processes and threads {}, and {} may still be started ({}): "
                     "raise the limit, or use fewer ranks or threads (OMP_NUM_THREADS)",
                     needs.processes, where, limits.processes.count, limits.processes.source)});
  return all;
}

void check_process_limits(int ranks) {
  const int asked_for = threads_asked_for();
  const int threads = asked_for > 0 ? asked_for : threads_per_rank(ranks);
  const auto all = lacks(process_limits(), process_needs(ranks, threads, 0), "here");
  if (!all.empty()) fail_user("{}", all.front().text);
}

}  // namespace dstrain
