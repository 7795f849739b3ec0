#include "runtime/comm/rendezvous/peer_process.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace dstrain {
namespace {

// struct pidfd_info and its ioctl, as linux/pidfd.h of Linux 6.15 has them; older headers lack them.
struct PidfdInfo {
  uint64_t mask = 0;
  uint64_t cgroup = 0;
  std::array<uint32_t, 11> ids{};
  int32_t exit_code = 0;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kExit = uint64_t{1} << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

}  // namespace

PeerProcess::PeerProcess(int64_t pid)
    : pid_(pid), fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}

PeerProcess::~PeerProcess() {
  if (fd_ >= 0) ::close(fd_);
}

bool PeerProcess::alive() const {
  if (fd_ >= 0) {
    pollfd ended{fd_, POLLIN, 0};
    return ::poll(&ended, 1, 0) <= 0;
  }
  const char now = state();
  return now != 'Z' && now != 'X';
}

bool PeerProcess::stopped() const {
  return alive() && state() == 'T';
}

std::optional<int> PeerProcess::wait_status() const {
  PidfdInfo info;
  info.mask = kExit;
  if (fd_ < 0 || ::ioctl(fd_, kGetInfo, &info) != 0 || (info.mask & kExit) == 0)
    return std::nullopt;
  return info.exit_code;
}

// Returns the state letter of /proc, or 'X' if there is no such process.
char PeerProcess::state() const {
  // "pid (name) state ...": the name may hold anything, so the state follows the last parenthesis.
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  std::string line;
  if (!std::getline(file, line)) return 'X';
  const size_t name_end = line.rfind(')');
  return name_end + 2 < line.size() ? line[name_end + 2] : 'X';
}

}  // namespace dstrain
