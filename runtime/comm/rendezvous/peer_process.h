// PeerProcess: another process of this machine, and whether it still lives. Uses a pidfd, which reports a
// killed process before its parent has collected it and never means another process with the same number;
// if the kernel refuses a pidfd, /proc.
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
  // Returns whether it lives but is stopped (SIGSTOP). A process that a debugger holds is not stopped.
  bool stopped() const;
  // Returns its wait status, as waitpid() gives it, once its parent has collected it. Needs Linux 6.15.
  std::optional<int> wait_status() const;

 private:
  char state() const;

  int64_t pid_ = 0;
  int fd_ = -1;
};

}  // namespace dstrain
