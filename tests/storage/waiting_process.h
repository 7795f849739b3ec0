// WaitingProcess: a child process that runs a function and then waits until it is killed.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>

namespace dstrain {

class WaitingProcess {
 public:
  explicit WaitingProcess(const std::function<void()>& body) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      body();
      if (::write(pipe[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char ready = 0;
    REQUIRE(::read(pipe[0], &ready, 1) == 1);
    for (const int end : pipe) ::close(end);
  }
  ~WaitingProcess() { kill(); }
  WaitingProcess(const WaitingProcess&) = delete;
  WaitingProcess& operator=(const WaitingProcess&) = delete;
  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace dstrain
