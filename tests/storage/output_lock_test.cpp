// The lock of an output directory: its holder, its release at the end of the process, and forks that share it.
#include "runtime/storage/output_lock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

// A child process that runs `body` and then waits until it is killed.
class Process {
 public:
  explicit Process(const std::function<void()>& body) {
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
  ~Process() { kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
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

TEST_CASE(
    "a directory that another process has is refused by its name, and free when that is killed") {
  const TempDir dir;
  Process holder([&dir] { new OutputLock(dir.path()); });  // held until the process ends
  const std::string who = "pid " + std::to_string(holder.pid()) + " on ";
  CHECK_THROWS_WITH(OutputLock(dir.path()), Contains(dir.path()) && Contains(who));
  CHECK_THROWS_AS(refuse_if_locked(dir.path()), UserError);
  holder.kill();
  CHECK_NOTHROW(refuse_if_locked(dir.path()));
  CHECK_NOTHROW(OutputLock(dir.path()));
}

TEST_CASE("a lock that its owner lets go of is free") {
  const TempDir dir;
  { const OutputLock lock(dir.path()); }
  CHECK_NOTHROW(OutputLock(dir.path()));
}

TEST_CASE("a rank that was forked keeps the lock while it lives") {
  const TempDir dir;
  auto lock = std::make_unique<OutputLock>(dir.path());
  Process rank([] {});
  lock.reset();
  CHECK_THROWS_AS(OutputLock(dir.path()), UserError);
  rank.kill();
  CHECK_NOTHROW(OutputLock(dir.path()));
}

TEST_CASE("a directory that is not there is in nobody's use") {
  const TempDir dir;
  CHECK_NOTHROW(refuse_if_locked(dir / "none"));
  CHECK_FALSE(std::filesystem::exists(dir / "none"));
}

}  // namespace
}  // namespace dstrain
