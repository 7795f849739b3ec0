#include "launcher/process/child.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "runtime/core/error.h"
#include "tests/launcher/support/processes.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

struct Ending {
  int status = 0;  // as waitpid tells it
  std::string text;
};

// Reads what the child writes until it has ended.
Ending end_of(Child& child) {
  Ending ending;
  REQUIRE(wait_until([&] { return child.ended().has_value(); }));
  ending.status = *child.ended();
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::read(child.output(), buffer.data(), buffer.size())) > 0;)
    ending.text.append(buffer.data(), static_cast<size_t>(n));
  return ending;
}

TEST_CASE("a fork does its work with the variables, and ends with what it returns") {
  Child child([] { return fmt::print("{} is set\n", std::getenv("DSTRAIN_CHILD")), 7; },
              {{"DSTRAIN_CHILD", "a b"}});
  const Ending ending = end_of(child);
  CHECK(WEXITSTATUS(ending.status) == 7);
  CHECK(ending.text == "a b is set\n");
  CHECK(std::getenv("DSTRAIN_CHILD") == nullptr);
}

TEST_CASE("what a fork throws is its one error") {
  Child child([]() -> int { fail_user("no such thing"); }, {});
  const Ending ending = end_of(child);
  CHECK(WEXITSTATUS(ending.status) == 1);
  CHECK(ending.text == "dstrain: error: no such thing\n");
}

TEST_CASE("a fork leads a group of its own and does not outlive its object") {
  pid_t pid = 0;
  {
    Child child([] { return ::pause(); }, {});
    pid = child.pid();
    CHECK(::getpgid(pid) == pid);
    CHECK_FALSE(child.ended());
  }
  CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("a program that cannot be started says so") {
  const TempDir dir;
  const std::string none = dir / "program";
  Child child({none, "x"}, {});
  const Ending ending = end_of(child);
  CHECK(WEXITSTATUS(ending.status) == 127);
  CHECK(ending.text == "cannot start " + none + ": No such file or directory\n");
}

TEST_CASE("a child process that finds no free descriptor is an error that says so") {
  const int lowest = ::dup(STDIN_FILENO);
  ::close(lowest);
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
  int refused = 0, started = 0;
  for (int free = 0; free < 10; ++free) {
    CAPTURE(free);
    const rlimit few{static_cast<rlim_t>(lowest + free), usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    try {
      Child child([] { return 0; }, {});
      const Ending ending = end_of(child);
      CHECK(WEXITSTATUS(ending.status) == 0);
      ++started;
    } catch (const RunError& e) {
      CHECK_THAT(e.what(), Catch::EndsWith("Too many open files (see `ulimit -n`)"));
      ++refused;
    }
    ::setrlimit(RLIMIT_NOFILE, &usual);
  }
  CHECK(refused > 0);
  CHECK(started > 0);
}

}  // namespace
}  // namespace dstrain
