#include "runtime/core/rank_board.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("a fresh board says nothing") {
  const RankBoard board = RankBoard::create(3);
  CHECK(board.ranks() == 3);
  CHECK(board.stop_request() == 0);
  CHECK(board.stopped() == 0);
  CHECK_FALSE(board.first_failure().has_value());
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(board.slot(rank).state.load() == RankState::absent);
    CHECK(board.slot(rank).current_instruction().empty());
  }
  CHECK_THROWS_AS(board.slot(3), InternalError);
  CHECK_THROWS_AS(board.slot(-1), InternalError);
}

TEST_CASE("what another process writes stays readable when it is killed") {
  const RankBoard board = RankBoard::create(2);
  const std::string address = board.address();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const RankBoard mine = RankBoard::attach(address);
    RankSlot& slot = mine.slot(1);
    slot.pid = ::getpid();
    slot.set_state(RankState::running);
    const std::vector<std::string> names = {"gather blocks.0", "linear blocks.0", ""};
    const int64_t base = slot.add_names(names);
    slot.begin_step(5);
    slot.publish(base + 1);
    ::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const RankSlot& slot = board.slot(1);
  CHECK(slot.pid.load() == child);
  CHECK(slot.state.load() == RankState::running);
  CHECK(slot.step.load() == 5);
  CHECK(slot.current_instruction() == "linear blocks.0");
  CHECK(slot.progress.load() > 0);
}

TEST_CASE("names of several plans stand one after the other") {
  const RankBoard board = RankBoard::create(1);
  RankSlot& slot = board.slot(0);
  const std::vector<std::string> train = {"a", "b"}, validate = {"c"};
  CHECK(slot.add_names(train) == 0);
  CHECK(slot.add_names(validate) == 2);
  slot.publish(2);
  CHECK(slot.current_instruction() == "c");
  slot.publish(3);
  CHECK(slot.current_instruction() == "instruction 3");
}

// Returns the kernel's flags of the mapping with `address`.
std::string mapping_flags(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2)
      inside = begin <= wanted && wanted < end;
    if (inside && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST_CASE("a board takes no huge pages, neither where it is made nor where it is opened") {
  const RankBoard board = RankBoard::create(8);
  const RankBoard opened = RankBoard::attach(board.address());
  for (const RankBoard* b : {&board, &opened}) {
    const std::string flags = mapping_flags(&b->slot(0));
    if (flags.empty()) continue;  // a kernel without huge pages
    CHECK(flags.find(" nh ") != std::string::npos);
  }
}

TEST_CASE("names that do not fit are known by their number") {
  const RankBoard board = RankBoard::create(1);
  RankSlot& slot = board.slot(0);
  const std::vector<std::string> many(3, std::string(slot.names.size() / 2 - 1, 'x'));
  CHECK(slot.add_names(many) == 0);
  CHECK(slot.add_names(many) == 3);
  slot.publish(1);
  CHECK(slot.current_instruction() == many[1]);
  slot.publish(2);
  CHECK(slot.current_instruction() == "instruction 2");
}

TEST_CASE("a name that is left out does not give its number to one of the next plan") {
  const RankBoard board = RankBoard::create(1);
  RankSlot& slot = board.slot(0);
  const std::string half(slot.names.size() / 2 - 1, 'x');
  const std::vector<std::string> train = {half, half + "x", "b"}, validate = {"c", "d"};
  CHECK(slot.add_names(train) == 0);
  CHECK(slot.add_names(validate) == 3);
  for (const int64_t index : {1, 2, 3, 4}) {
    slot.publish(index);
    CHECK(slot.current_instruction() == fmt::format("instruction {}", index));
  }
  slot.publish(0);
  CHECK(slot.current_instruction() == half);
}

TEST_CASE("the first failure is the culprit, whatever comes later and from whichever rank") {
  const RankBoard board = RankBoard::create(3);
  CHECK(board.fail(2, FailureKind::user, "no such file"));
  CHECK_FALSE(board.fail(0, FailureKind::run, "peer lost"));
  CHECK_FALSE(board.fail(2, FailureKind::internal, "again"));
  REQUIRE(board.first_failure() == 2);
  const RankSlot& slot = board.slot(2);
  CHECK(slot.state.load() == RankState::failed);
  CHECK(slot.failure_kind.load() == FailureKind::user);
  CHECK(slot.failure_text() == "no such file");
  CHECK(board.slot(1).failure_text().empty());
}

TEST_CASE("one of many failures at once is the first") {
  const RankBoard board = RankBoard::create(8);
  std::atomic<int> firsts{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 8; ++rank)
    threads.emplace_back([&, rank] { firsts += board.fail(rank, FailureKind::run, "x"); });
  for (std::thread& thread : threads) thread.join();
  CHECK(firsts == 1);
  CHECK(board.first_failure().has_value());
}

TEST_CASE("a message too long for the board is cut, not lost") {
  const RankBoard board = RankBoard::create(1);
  board.fail(0, FailureKind::run, std::string(10'000, 'm'));
  CHECK(board.slot(0).failure_text() == std::string(board.slot(0).message.size(), 'm'));
}

TEST_CASE("the first stop request stands") {
  const RankBoard board = RankBoard::create(1);
  const RankBoard peer = RankBoard::attach(board.address());
  board.request_stop(SIGINT);
  board.request_stop(SIGTERM);
  CHECK(peer.stop_request() == SIGINT);
  peer.set_stopped(SIGINT);
  CHECK(board.stopped() == SIGINT);
}

TEST_CASE("requests for traces within a second are one") {
  const RankBoard board = RankBoard::create(2);
  const RankBoard peer = RankBoard::attach(board.address());
  CHECK(peer.trace_requests() == 0);
  board.request_trace();
  board.request_trace();
  peer.request_trace();
  CHECK(peer.trace_requests() == 1);
  CHECK(board.stop_request() == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  peer.request_trace();
  CHECK(board.trace_requests() == 2);
}

TEST_CASE("a request that comes within a second after the agreement on it is not another one") {
  const RankBoard late = RankBoard::create(1);
  late.accept_trace();
  late.request_trace();
  CHECK(late.trace_requests() == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  late.request_trace();
  CHECK(late.trace_requests() == 1);
}

TEST_CASE("an address that is no board is an error that says why") {
  CHECK_THROWS_WITH(RankBoard::attach("x"), Catch::Contains("'x' is not the address"));
  CHECK_THROWS_WITH(RankBoard::attach("1:2"), Catch::Contains("is not the address"));
  CHECK_THROWS_WITH(RankBoard::attach("1:2:-3"), Catch::Contains("is not the address"));
  CHECK_THROWS_WITH(RankBoard::attach(fmt::format("{}:999:4096", ::getpid())),
                    Catch::Contains("No such file"));
  const Memory other = Memory::shared(1 << 21, "a test");
  CHECK_THROWS_WITH(
      RankBoard::attach(fmt::format("{}:{}:{}", ::getpid(), other.fd(), other.bytes())),
      Catch::Contains("another version of dstrain"));
}

}  // namespace
}  // namespace dstrain
