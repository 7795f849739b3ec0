#include "runtime/comm/peer_process.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace dstrain {

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

// 'X' where there is no such process.
char PeerProcess::state() const {
  // "pid (name) state ...": the name may hold anything, so the state follows the last parenthesis.
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  std::string line;
  if (!std::getline(file, line)) return 'X';
  const size_t name_end = line.rfind(')');
  return name_end + 2 < line.size() ? line[name_end + 2] : 'X';
}

}  // namespace dstrain
