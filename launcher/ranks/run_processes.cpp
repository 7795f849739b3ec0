#include "launcher/ranks/run_processes.h"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "launcher/process/process_state.h"

namespace dstrain {

namespace fs = std::filesystem;

std::vector<pid_t> processes_of_run(const std::string& run) {
  std::vector<pid_t> found;
  std::error_code none;
  const fs::path own_network = fs::read_symlink("/proc/self/ns/net", none);
  for (fs::directory_iterator entry("/proc", none), end; entry != end; entry.increment(none)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [stop, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || stop != name.data() + name.size() || pid == ::getpid()) continue;
    // Files of another user's process are unreadable and give empty texts.
    if (readable_text(entry->path() / "environ").find(run) == std::string::npos &&
        readable_text(entry->path() / "cmdline").find(run) == std::string::npos)
      continue;
    if (fs::read_symlink(entry->path() / "ns/net", none) != own_network) continue;
    if (!process_state(pid).ended()) found.push_back(pid);
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
