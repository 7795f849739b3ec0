#include "launcher/hosts/agent/run_place.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>

#include "launcher/placement/machine.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAddresses = "addresses";

fs::path run_directory(const std::string& run) {
  return fmt::format("{}-{}", run, host_name());
}

// What can be read of it: a process may end while its file is read.
std::string read_whole(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

bool has_ended(const fs::path& process) {
  const std::string stat = read_whole(process / "stat");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() ||
         stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X';
}

constexpr std::string_view kRunPrefix = "dstrain-";
constexpr size_t kRunDigits = 16;
size_t run_name_bytes() {
  return kRunPrefix.size() + kRunDigits;
}

// Whether a file's name begins with that of a run.
bool is_run_name(const std::string& name) {
  return name.size() > run_name_bytes() && name.starts_with(kRunPrefix) &&
         name.find_first_not_of("0123456789abcdef", kRunPrefix.size()) == run_name_bytes();
}

bool is_ours(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid() &&
         S_ISDIR(status.st_mode);
}

// A run makes its places before its processes.
bool is_young(const fs::path& path) {
  constexpr std::chrono::seconds kYouth{60};
  std::error_code none;
  const auto changed = fs::last_write_time(path, none);
  return !none && fs::file_time_type::clock::now() - changed < kYouth;
}

// The state and the parent of a process; a parent of 0: it has ended.
std::pair<char, pid_t> state_and_parent(pid_t process) {
  const std::string stat = read_whole(fmt::format("/proc/{}/stat", process));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return {'X', 0};
  std::istringstream rest(stat.substr(name_end + 1));
  char state = 'X';
  pid_t parent = 0;
  rest >> state >> parent;
  return {state, parent};
}

// Whether the agent that made a run's place here lives, and what started it does: the parent of the process that
// waits for it (agent.cpp). Kills one that is stopped and has
// been left alone.
bool agent_lives(const fs::path& addresses) {
  std::ifstream file(addresses);
  std::string board, output;
  pid_t agent = 0, guard = 0, starter = 0;
  if (!std::getline(file, board) || !std::getline(file, output) ||
      !(file >> agent >> guard >> starter))
    return is_young(addresses.parent_path());
  const auto [state, parent] = state_and_parent(agent);
  if (parent == 0 || state == 'Z' || state == 'X' ||
      read_whole(fmt::format("/proc/{}/cmdline", agent)).find("host_agent") == std::string::npos)
    return false;
  if (state_and_parent(guard).second == starter) return true;
  if (state == 'T') ::kill(agent, SIGKILL);
  return state != 'T';
}

// Whether any host has a place of this run below the same directory, which hosts may share.
bool any_place_of(const std::string& run) {
  std::error_code none;
  const std::string begin = fs::path(run).filename().string() + "-";
  for (fs::directory_iterator at(fs::path(run).parent_path(), none), end; !none && at != end;
       at.increment(none))
    if (at->path().filename().string().starts_with(begin)) return true;
  return false;
}

// Whether this host knows that the run goes on, or may.
bool lives(const std::string& run) {
  std::error_code none;
  const fs::path place = run_directory(run);
  if (fs::exists(place, none))
    return agent_lives(place / kAddresses) || !processes_of_run(run).empty();
  return is_young(mpi_directory(run)) || any_place_of(run) || !processes_of_run(run).empty();
}

}  // namespace

std::string new_run_name() {
  std::random_device source;
  const uint64_t number = uint64_t{source()} << 32 | source();
  std::error_code none;
  fs::path base = fs::temp_directory_path(none);
  if (none) base = "/tmp";
  return (base / fmt::format("{}{:0{}x}", kRunPrefix, number, kRunDigits)).string();
}

std::string mpi_directory(const std::string& run) {
  return run + ".mpi";
}

RunPlace::RunPlace(const std::string& run) : path_(run_directory(run)), mpi_(mpi_directory(run)) {
  if (::mkdir(path_.c_str(), 0700) != 0)
    fail_run("cannot make the directory {}: {} (TMPDIR names another place)", path_.string(),
             std::strerror(errno));
}

RunPlace::~RunPlace() {
  std::error_code none;  // what cannot be removed stays for the system's own cleaning
  fs::remove_all(path_, none);
  fs::remove_all(mpi_, none);
}

void RunPlace::publish(const std::string& board, const std::string& output) const {
  std::ofstream file(path_ / kAddresses);
  const pid_t guard = ::getppid();
  file << board << '\n'
       << output << '\n'
       << ::getpid() << ' ' << guard << ' ' << state_and_parent(guard).second << '\n';
  if (!file.flush()) fail_run("cannot write {}", (path_ / kAddresses).string());
}

void clear_dead_runs(const std::string& run) {
  const fs::path base = fs::path(run).parent_path();
  std::vector<std::string> runs;  // that have left anything here
  std::error_code none;
  for (fs::directory_iterator at(base, none), end; !none && at != end; at.increment(none)) {
    const std::string name = at->path().filename().string();
    const std::string other = (base / name.substr(0, run_name_bytes())).string();
    const bool own_place = at->path() == run_directory(other),
               mpi = at->path() == mpi_directory(other);
    if (other == run || !is_run_name(name) || !(own_place || mpi) || !is_ours(at->path())) continue;
    runs.push_back(other);
  }
  for (const std::string& other : runs) {
    if (lives(other)) continue;
    fs::remove_all(run_directory(other), none);
    if (!any_place_of(other)) fs::remove_all(mpi_directory(other), none);
  }
}

RunAddresses read_addresses(const std::string& run) {
  const fs::path path = run_directory(run) / kAddresses;
  std::ifstream file(path);
  RunAddresses addresses;
  if (!std::getline(file, addresses.board) || !std::getline(file, addresses.output))
    fail_run("cannot read {}: no agent of the launching process watches this host", path.string());
  return addresses;
}

std::vector<pid_t> processes_of_run(const std::string& run) {
  std::vector<pid_t> found;
  std::error_code none;
  const fs::path own_network = fs::read_symlink("/proc/self/ns/net", none);
  for (fs::directory_iterator entry("/proc", none), end; entry != end; entry.increment(none)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [stop, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || stop != name.data() + name.size() || pid == ::getpid()) continue;
    // Another user's are unreadable, and so not found.
    if (read_whole(entry->path() / "environ").find(run) == std::string::npos &&
        read_whole(entry->path() / "cmdline").find(run) == std::string::npos)
      continue;
    if (fs::read_symlink(entry->path() / "ns/net", none) != own_network) continue;
    if (!has_ended(entry->path())) found.push_back(pid);
  }
  return found;
}

size_t kill_run(const std::string& run) {
  constexpr int kTries = 60;
  constexpr std::chrono::milliseconds kPause{50};
  std::vector<pid_t> left = processes_of_run(run);
  for (int i = 0; i < kTries && !left.empty(); ++i) {
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(kPause);
    left = processes_of_run(run);
  }
  return left.size();
}

}  // namespace dstrain
