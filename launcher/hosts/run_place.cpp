#include "launcher/hosts/run_place.h"

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

#include "launcher/machine.h"
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

}  // namespace

std::string new_run_name() {
  std::random_device source;
  const uint64_t number = uint64_t{source()} << 32 | source();
  std::error_code none;
  fs::path base = fs::temp_directory_path(none);
  if (none) base = "/tmp";
  return (base / fmt::format("dstrain-{:016x}", number)).string();
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
  file << board << '\n' << output << '\n';
  if (!file.flush()) fail_run("cannot write {}", (path_ / kAddresses).string());
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
