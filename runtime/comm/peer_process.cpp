#include "runtime/comm/peer_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <string>

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
  // "pid (name) state ...": the name may hold anything, so the state follows the last parenthesis.
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t name_end = line.rfind(')');
  const char state = name_end + 2 < line.size() ? line[name_end + 2] : 'X';
  return state != 'Z' && state != 'X';
}

}  // namespace dstrain
