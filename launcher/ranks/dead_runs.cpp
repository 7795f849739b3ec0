#include "launcher/ranks/dead_runs.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "launcher/process/process_state.h"
#include "launcher/ranks/run_directory.h"
#include "launcher/ranks/run_processes.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

size_t run_name_bytes() {
  return kRunPrefix.size() + kRunDigits;
}

// Returns whether a file's name begins with a run's.
bool is_run_name(const std::string& name) {
  return name.size() > run_name_bytes() && name.starts_with(kRunPrefix) &&
         name.find_first_not_of("0123456789abcdef", kRunPrefix.size()) == run_name_bytes();
}

bool is_ours(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid() &&
         S_ISDIR(status.st_mode);
}

// Returns whether the directory is new: a run makes its directories before its processes.
bool is_young(const fs::path& path) {
  constexpr std::chrono::seconds kYouth{60};
  std::error_code none;
  const auto changed = fs::last_write_time(path, none);
  return !none && fs::file_time_type::clock::now() - changed < kYouth;
}

// Returns whether the agent that published `addresses` lives. Kills it if it is stopped and its starter, which is the
// parent of its guard process (hosts/agent/agent.cpp), has ended.
bool agent_lives(const fs::path& addresses) {
  std::ifstream file(addresses);
  std::string board, output;
  pid_t agent = 0, guard = 0, starter = 0;
  if (!std::getline(file, board) || !std::getline(file, output) ||
      !(file >> agent >> guard >> starter))
    return is_young(addresses.parent_path());
  const ProcessState state = process_state(agent);
  if (state.ended() ||
      readable_text(fmt::format("/proc/{}/cmdline", agent)).find("host_agent") == std::string::npos)
    return false;
  if (process_state(guard).parent == starter) return true;
  if (state.state == 'T') ::kill(agent, SIGKILL);
  return state.state != 'T';
}

// Returns whether any host has a private directory of this run: hosts may share the directory around it.
bool any_directory_of(const std::string& run) {
  std::error_code none;
  const std::string begin = fs::path(run).filename().string() + "-";
  for (fs::directory_iterator at(fs::path(run).parent_path(), none), end; !none && at != end;
       at.increment(none))
    if (at->path().filename().string().starts_with(begin)) return true;
  return false;
}

// Returns whether the run is alive, as far as this host can tell.
bool is_alive(const std::string& run) {
  std::error_code none;
  if (fs::exists(run_directory(run), none))
    return agent_lives(addresses_file(run)) || !processes_of_run(run).empty();
  return is_young(mpi_directory(run)) || any_directory_of(run) || !processes_of_run(run).empty();
}

}  // namespace

void clear_dead_runs(const std::string& run) {
  const fs::path base = fs::path(run).parent_path();
  std::vector<std::string> runs;  // whose directories are here
  std::error_code none;
  for (fs::directory_iterator at(base, none), end; !none && at != end; at.increment(none)) {
    const std::string name = at->path().filename().string();
    const std::string other = (base / name.substr(0, run_name_bytes())).string();
    const bool private_directory = at->path() == run_directory(other),
               mpi = at->path() == mpi_directory(other);
    if (other == run || !is_run_name(name) || !(private_directory || mpi) || !is_ours(at->path()))
      continue;
    runs.push_back(other);
  }
  for (const std::string& other : runs) {
    if (is_alive(other)) continue;
    fs::remove_all(run_directory(other), none);
    if (!any_directory_of(other)) fs::remove_all(mpi_directory(other), none);
  }
}

void clear_lost_run(const std::string& run) {
  kill_run(run);
  remove_run_files(run);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  kill_run(run);
  remove_run_files(run);
}

}  // namespace dstrain
