#include "runtime/storage/output_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/storage/output_file.h"

namespace dstrain {
namespace {

using Clock = std::chrono::steady_clock;

std::string lock_file(const std::string& directory) {
  return directory + "/.dstrain.lock";
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "this machine";
  return name.data();
}

std::string text_of(int file) {
  std::array<char, 512> text{};
  const ssize_t bytes = ::pread(file, text.data(), text.size(), 0);
  std::string holder(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder;
}

// Returns whether `holder` is "pid N on HOST" with a process of this machine that has ended. Its ranks then
// still hold the lock, but are about to end.
bool has_ended(const std::string& holder) {
  constexpr std::string_view beginning = "pid ";
  if (!holder.starts_with(beginning)) return false;
  pid_t pid = 0;
  const char* const end = holder.data() + holder.size();
  const auto [rest, error] = std::from_chars(holder.data() + beginning.size(), end, pid);
  if (error != std::errc() || pid <= 0 || std::string(rest, end) != " on " + host_name())
    return false;
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

[[noreturn]] void refuse(const std::string& directory, int file) {
  const std::string holder = text_of(file);
  ::close(file);
  throw OutputInUse(
      fmt::format("the output directory {} is in use by another run ({}): wait for its end, or "
                  "name another directory with --output",
                  directory, holder.empty() ? "a process that does not say which" : holder));
}

// Takes a lock of that `kind`. Returns false if the file system has no locks.
bool take(const std::string& directory, int file, int kind) {
  constexpr std::chrono::seconds most{5};
  const auto begin = Clock::now();
  while (::flock(file, kind | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return false;
    if (!has_ended(text_of(file)) || Clock::now() - begin > most) refuse(directory, file);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

OutputLock::OutputLock(const std::string& directory) {
  const std::string path = lock_file(directory);
  const OutputFile file = open_output_file(path, O_RDWR);
  file_ = file.descriptor;
  if (file_ < 0)
    fail_user("cannot write {}: {} (--output names another directory)", path, file.problem);
  if (!take(directory, file_, LOCK_EX)) {
    log::warn("{} cannot be locked ({}): a second run in it at the same time would not be noticed",
              directory, std::strerror(errno));
    return;
  }
  const std::string holder = fmt::format("pid {} on {}", ::getpid(), host_name());
  const std::string line = holder + "\n";
  if (::ftruncate(file_, 0) != 0 ||
      ::pwrite(file_, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()))
    log::warn("cannot write {}: {}", path, std::strerror(errno));
  else
    holder_ = holder;
}

OutputLock::~OutputLock() {
  if (file_ >= 0) ::close(file_);
}

bool is_locked_by(const std::string& directory, const std::string& holder) {
  const int file =
      ::open(lock_file(directory).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  const bool same = text_of(file) == holder;
  ::close(file);
  return same;
}

void refuse_if_locked(const std::string& directory) {
  const int file =
      ::open(lock_file(directory).c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;  // no run has used it; other errors are reported when the lock is taken
  take(directory, file, LOCK_SH);
  ::close(file);
}

}  // namespace dstrain
