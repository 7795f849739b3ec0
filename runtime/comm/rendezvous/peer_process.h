// PeerProcess: whether another process of this machine still lives. Stands on pidfd, which sees a
// killed process before its parent has collected it and is immune to reuse of the number; where the
// kernel refuses that, on /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace dstrain {

class PeerProcess {
 public:
  PeerProcess() = default;
  explicit PeerProcess(int64_t pid);
  PeerProcess(PeerProcess&& other) noexcept { *this = std::move(other); }
  PeerProcess& operator=(PeerProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();

  int64_t pid() const { return pid_; }
  bool alive() const;
  // Whether it lives but is stopped (SIGSTOP); one that a debugger holds is not.
  bool stopped() const;
  // How it ended, as waitpid() says it, once its parent has collected it and where the kernel tells others
  // (Linux 6.15).
  std::optional<int> wait_status() const;

 private:
  char state() const;

  int64_t pid_ = 0;
  int fd_ = -1;
};

}  // namespace dstrain
