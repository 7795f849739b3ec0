#include "launcher/doctor/limits.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "tests/launcher/doctor/made_up_machine.h"

namespace dstrain {
namespace {

const ProcessNeeds kNeeds{.open_files = 80, .processes = 20};

TEST_CASE("limits that a run can live with are told with what it needs") {
  const LimitFacts facts{
      .processes = {.open_files = 80, .processes = {20, "ulimit -u is 30, and this user has 10"}},
      .locked = 8 << 20,
      .core_file = 0,
      .stack = 8 << 20};
  const MachineLines lines = limit_lines(facts, kNeeds, 0);
  REQUIRE(lines.size() == 5);
  CHECK(count_of(lines, Health::ok) == 5);
  CHECK(lines[0].text == "80 (ulimit -n), a run needs 80");
  CHECK(lines[0].values["needed"] == 80);
  CHECK(lines[1].text ==
        "20 may be started (ulimit -u is 30, and this user has 10), a run needs 20");
  CHECK(lines[2].text == "8.39 MB (ulimit -l)");
  CHECK(lines[3].text == "a crash leaves none (ulimit -c unlimited lets it)");
  CHECK(lines[4].text == "8.39 MB for each thread (ulimit -s)");
}

TEST_CASE("a limit below what a run needs is a problem in the words of a run") {
  const LimitFacts facts{.processes = {.open_files = 79, .processes = {19, "a test"}}};
  const MachineLines lines = limit_lines(facts, kNeeds, 0);
  const std::vector<ProcessLack> all = lacks(facts.processes, kNeeds, "here");
  REQUIRE(all.size() == 2);
  CHECK(line_with(lines, "open files", Health::problem).text == all[0].text);
  CHECK(line_with(lines, "processes", Health::problem).text == all[1].text);
}

TEST_CASE("no limit is unlimited, and null in JSON") {
  const MachineLines lines = limit_lines({}, kNeeds, 8);
  CHECK(count_of(lines, Health::ok) == 5);
  CHECK(lines[0].text == "unlimited (ulimit -n), a run needs 80");
  CHECK(lines[1].text == "unlimited, a run needs 20");
  CHECK(lines[2].text == "unlimited (ulimit -l)");
  CHECK(lines[3].text == "a crash may leave one of any size (ulimit -c 0 prevents it)");
  CHECK(lines[0].values["limit"].is_null());
}

TEST_CASE("locked memory matters beside GPUs, a stack only where it is small") {
  LimitFacts facts{.locked = 65536, .stack = 65536};
  CHECK(line_with(limit_lines(facts, kNeeds, 0), "locked memory", Health::ok).remedy.empty());
  CHECK_FALSE(
      line_with(limit_lines(facts, kNeeds, 1), "locked memory", Health::note).remedy.empty());
  CHECK_FALSE(line_with(limit_lines(facts, kNeeds, 0), "stack", Health::note).remedy.empty());
}

TEST_CASE("this process's limits are those of the system") {
  rlimit stack{};
  REQUIRE(::getrlimit(RLIMIT_STACK, &stack) == 0);
  CHECK(limit_facts().stack ==
        (stack.rlim_cur == RLIM_INFINITY ? kUnlimited : static_cast<int64_t>(stack.rlim_cur)));
}

}  // namespace
}  // namespace dstrain
