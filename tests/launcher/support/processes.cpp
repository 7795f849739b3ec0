#include "tests/launcher/support/processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

namespace dstrain {
namespace {

// The process that a folder of /proc is of.
std::optional<pid_t> process_of(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename();
  pid_t pid = 0;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (status != std::errc() || *end != '\0') return std::nullopt;
  return pid;
}

}  // namespace

bool wait_until(const std::function<bool()>& done, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

RunningProgram::RunningProgram(const std::vector<std::string>& command, const Environment& added)
    : child_(command, added) {}

const std::string& RunningProgram::text() {
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(child_.output(), buffer.data(), buffer.size())) > 0;)
    text_.append(buffer.data(), static_cast<size_t>(n));
  return text_;
}

bool RunningProgram::wrote(const std::string& part) {
  return text().find(part) != std::string::npos;
}

int RunningProgram::wait(double seconds) {
  const bool ended = wait_until(
      [this] {
        text();
        return child_.ended().has_value();
      },
      seconds);
  text();
  if (!ended) return -1;
  const int status = *child_.ended();
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::optional<pid_t> process = process_of(entry);
    if (!process) continue;
    std::string stat;  // "4711 (name) S 4710 ...", where the name may hold anything
    std::getline(std::ifstream(entry.path() / "stat"), stat);
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 4 >= stat.size()) continue;
    pid_t parent = 0;
    std::from_chars(stat.data() + name_end + 4, stat.data() + stat.size(), parent);
    if (parent == pid) found.push_back(*process);
  }
  return found;
}

pid_t starter_of(pid_t launcher) {
  const std::vector<pid_t> children = children_of(launcher);
  return children.empty() ? 0 : children.front();
}

std::vector<pid_t> ranks_of(pid_t launcher) {
  const pid_t starter = starter_of(launcher);
  return starter == 0 ? std::vector<pid_t>{} : children_of(starter);
}

std::vector<pid_t> processes_with(const std::string& token) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::optional<pid_t> pid = process_of(entry);
    if (!pid) continue;
    // A process may end while its file is read, which is an end of file to getline().
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    for (std::string word; std::getline(file, word, '\0');) {
      if (word != token) continue;
      found.push_back(*pid);
      break;
    }
  }
  return found;
}

}  // namespace dstrain
