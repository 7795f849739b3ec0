// OrderedComm over a transport that goes on when the test says so.
#include "runtime/comm/ordered_comm.h"

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Waits until `arrived` is set.
class Switch final : public Awaited {
 public:
  bool ready() override { return arrived; }
  int waited_rank() override { return 1; }
  void sleep(int earlier, std::chrono::microseconds) override {
    sleeps.push_back(earlier);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  bool arrived = false;
  std::vector<int> sleeps;
};

// Rank 0 of two. Each operation pauses once, waits for `peer`, and fails where the test wants it to.
class ScriptedComm final : public OrderedComm {
 public:
  explicit ScriptedComm(const CommOptions& options) : OrderedComm(0, 2, options) {}
  ~ScriptedComm() override { close(); }
  Memory allocate(int64_t bytes, const std::string& what) override {
    return Memory::anonymous(bytes, what);
  }

  Switch peer;
  bool fails = false, peer_lives = true;
  bool stopped =
      false;  // by rank 1, whose word of that arrives at the third look after its end was seen
  std::vector<int64_t> completed;
  std::vector<const void*> frames;
  std::string aborted;

 protected:
  std::unique_ptr<Communicator> open_part(std::unique_ptr<PartRendezvous>) override {
    return nullptr;
  }
  Stages run(Operation op) override {
    frames.push_back(&op);
    co_await Stages::Pause();
    co_await peer;
    if (fails) fail_run("the link broke");
    completed.push_back(op.key.sequence);
  }
  bool peer_alive(int) override {
    seen_dead_ = !peer_lives;
    return peer_lives;
  }
  std::string peer_name(int) override { return "rank 1 (pid 7)"; }
  double extra_seconds(int) override { return 0; }
  void raise_abort(const std::string& reason) override { aborted = reason; }
  std::optional<Abort> raised_abort() override {
    if (!stopped || !seen_dead_ || ++looks_ < 3) return std::nullopt;
    return Abort{1, "no space left on the disk"};
  }
  void leave() override {}

 private:
  bool seen_dead_ = false;
  int looks_ = 0;
};

Tensor four_floats() {
  static std::array<float, 4> data{};
  return {data.data(), {4}, DType::f32};
}

TEST_CASE("operations complete in start order, each in the memory of the one before") {
  ScriptedComm comm({});
  std::vector<Work> works;
  for (int i = 0; i < 100; ++i) works.push_back(comm.all_reduce(four_floats()));
  CHECK_FALSE(works.front().poll());
  comm.peer.arrived = true;
  works[1].wait();
  CHECK(comm.completed == std::vector<int64_t>{1, 2});
  works.back().wait();
  CHECK(comm.completed.size() == 100);
  for (const void* frame : comm.frames) CHECK(frame == comm.frames.front());
  comm.finish();
}

TEST_CASE(
    "a wait that reaches its deadline names the rank and the operation, and stops the group") {
  CommOptions options;
  options.deadline_seconds = 0.3;
  ScriptedComm comm(options);
  const std::string text = "in all_reduce #1 (16 bytes of f32): the deadline is 0.3 s";
  CHECK_THROWS_WITH(comm.all_reduce(four_floats()).wait(),
                    Catch::StartsWith("rank 0 waited ") && Catch::EndsWith(text));
  CHECK(comm.aborted.ends_with(text));
  CHECK_THROWS_AS(comm.barrier(), PeerError);
  for (size_t i = 0; i < comm.peer.sleeps.size(); ++i)
    REQUIRE(comm.peer.sleeps[i] == static_cast<int>(i));
}

TEST_CASE("a dead peer ends a wait before the deadline") {
  ScriptedComm comm({});
  comm.peer_lives = false;
  CHECK_THROWS_WITH(comm.barrier(), "rank 1 (pid 7) died while rank 0 waited for it in barrier #1");
}

TEST_CASE(
    "a peer that ended because the run stopped is not blamed, though the word of that comes after "
    "its end") {
  ScriptedComm comm({});
  comm.peer_lives = false;
  comm.stopped = true;
  CHECK_THROWS_WITH(comm.barrier(), "rank 1 stopped the run: no space left on the disk");
  CHECK(comm.aborted.empty());
}

TEST_CASE("an operation that has failed is not resumed") {
  ScriptedComm comm({});
  comm.peer.arrived = comm.fails = true;
  Work work = comm.all_reduce(four_floats());
  CHECK_THROWS_WITH(work.wait(), "the link broke");
  CHECK_THROWS_AS(work.wait(), InternalError);
  CHECK(comm.completed.empty());
}

}  // namespace
}  // namespace dstrain
