// A queue whose collectives run in streams, between ranks that are threads of the test: emulated devices, and a
// transport that behaves like NCCL.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/comm/devices/stream_comm.h"
#include "runtime/engine/step/queues/comm_queue.h"
#include "tests/engine/device/submitted_library.h"
#include "tests/engine/shared_world.h"
#include "tests/support/emulated_transport.h"

namespace dstrain {
namespace {

constexpr int64_t kSumElements = 1003;
constexpr int64_t kSumBytes = kSumElements * static_cast<int64_t>(sizeof(float));

// A rank with a step of two sums, and kernels between them: `values` become 2 (sum of 10 values) over ranks and are
// summed again.
class GraphRank {
 public:
  explicit GraphRank(Communicator& world)
      : backend_(submitted_backend()),
        comm_(world, *backend_.device, connect_emulated),
        values_(backend_.device->allocate(kSumBytes, "a test")) {
    const std::array<Communicator*, 1> channels{&comm_};
    const std::array<size_t, 1> most{2};
    queue_ = make_comm_queue(channels, backend_, most, false);
  }
  ~GraphRank() { comm_.abandon(); }

  void post_step() {
    post_half(0);
    post_half(1);
  }
  void capture() {
    queue_->capturing();
    backend_.compute->begin_capture();
    post_step();
    graph_ = backend_.compute->end_capture();
    queue_->captured();
  }
  // Runs a step as two graphs, and captures each of them the first time.
  void replay_halves() {
    for (size_t half = 0; half < 2; ++half) {
      if (half >= halves_.size()) {
        queue_->capturing();
        backend_.compute->begin_capture();
        post_half(static_cast<int>(half));
        halves_.push_back(backend_.compute->end_capture());
        queue_->captured();
      }
      halves_[half]->launch(*backend_.compute);
      queue_->replayed(half);
    }
  }
  void capture_and_replay() {
    capture();
    replay();
    end_step();
  }
  void replay() {
    graph_->launch(*backend_.compute);
    queue_->replayed(0);
    queue_->wait(0, 2);
  }
  // Returns once the device has done the step.
  void end_step() {
    backend_.compute->synchronize();
    queue_->restart();
  }
  void set(float value) {
    const std::vector<float> values(static_cast<size_t>(kSumElements), value);
    backend_.device->upload(values_.data(), values.data(), kSumBytes);
  }
  // Returns the value of all elements; -1 if they differ.
  float value() const {
    std::vector<float> values(static_cast<size_t>(kSumElements));
    backend_.device->download(values.data(), values_.data(), kSumBytes);
    for (const float v : values)
      if (v != values[0]) return -1;
    return values[0];
  }
  StreamComm& comm() { return comm_; }
  CommQueue& queue() { return *queue_; }

 private:
  Tensor tensor() const { return {values_.data(), {kSumElements}, DType::f32}; }
  void post_half(int half) {
    multiply(half == 0 ? 10 : 2);
    queue_->post(0, OpKind::all_reduce, tensor(), tensor());
    queue_->wait(0, half + 1);
  }
  void multiply(float factor) {
    static_cast<EmulatedStream*>(backend_.compute->native())->submit([t = tensor(), factor] {
      for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] *= factor;
    });
  }

  Backend backend_;
  StreamComm comm_;
  Memory values_;
  std::unique_ptr<CommQueue> queue_;
  std::unique_ptr<Graph> graph_;
  std::vector<std::unique_ptr<Graph>> halves_;
};

// Runs steps on two ranks, and checks of each the sum, the counted bytes and the times.
template <class RunStep>
void check_steps(int steps, RunStep run_step) {
  const RankBoard board = board_of(2);
  std::array<int, 2> wrong{};
  const auto errors = run_ranks(2, [&](int rank) {
    const auto world = join_board(board, rank);
    int& bad = wrong[static_cast<size_t>(rank)];
    {
      GraphRank r(*world);
      const int64_t sent = r.comm().wire_bytes();
      for (int step = 0; step < steps; ++step) {
        r.set(static_cast<float>(rank + step));
        const int64_t before = monotonic_ns();
        run_step(r, step);
        bad += r.comm().wire_bytes() != sent + (step + 1) * 2 * kSumBytes;
        for (const size_t i : {0, 1}) bad += r.queue().times(0, i).begin_ns < before;
        r.end_step();
        bad += r.value() != static_cast<float>(10 * (1 + 2 * step) * 2 * 2);
      }
    }
    world->finish();
  });
  for (const std::string& error : errors) CHECK(error.empty());
  CHECK(wrong == std::array{0, 0});
}

}  // namespace

TEST_CASE("a replayed step does what a posted one does, counts its bytes and has times") {
  check_steps(6, [](GraphRank& r, int step) {
    if (step == 1) r.capture();  // which counts nothing
    if (step == 0)
      r.post_step();
    else
      r.replay();
  });
}

TEST_CASE("a step of two graphs does what one of a graph does, and counts as much") {
  check_steps(4, [](GraphRank& r, int) { r.replay_halves(); });
}

TEST_CASE("a peer that is missing in a replayed step is found at the deadline") {
  const RankBoard board = board_of(2);
  std::atomic<bool> over{false};
  std::string failure;
  const auto errors = run_ranks(2, [&](int rank) {
    const auto world = join_board(board, rank);
    GraphRank r(*world);
    r.capture();
    for (int step = 0; step < 2; ++step) {
      r.replay();
      r.end_step();
    }
    r.comm().set_deadline(0.3);
    if (rank == 1) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    try {
      r.replay();
      r.end_step();
    } catch (const RunError& error) {
      failure = error.what();
    }
    over = true;
  });
  for (const std::string& error : errors) CHECK(error.empty());
  CHECK(failure == "a collective on rank 0: no answer from the other ranks within 0.3 s");
}

TEST_CASE(
    "a rank that fails while its graphs live tells its peers and does not wait for the graphs") {
  const RankBoard board = board_of(2);
  std::array<std::string, 2> failures;
  std::atomic<int> ready{0};  // ranks whose first steps have ended
  const auto errors = run_ranks(2, [&](int rank) {
    const auto world = join_board(board, rank);
    GraphRank r(*world);
    r.capture_and_replay();
    ++ready;
    while (ready < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    try {
      if (rank == 0) {
        r.comm().abandon();
        r.comm().abort("a gradient is not finite");
      }
      r.replay();
      r.end_step();
    } catch (const RunError& error) {
      failures[static_cast<size_t>(rank)] = error.what();
    }
  });
  for (const std::string& error : errors) CHECK(error.empty());
  CHECK(failures[0] == "this rank has failed");
  CHECK(failures[1] == "rank 0 stopped the run: a gradient is not finite");
}

TEST_CASE("a peer that aborts ends a replayed step") {
  const RankBoard board = board_of(2);
  std::atomic<bool> waits{false};
  std::string failure;
  const auto errors = run_ranks(2, [&](int rank) {
    const auto world = join_board(board, rank);
    GraphRank r(*world);
    r.capture_and_replay();
    if (rank == 1) {
      while (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return r.comm().abort("the disk is full");
    }
    try {
      r.replay();
      waits = true;
      r.end_step();
    } catch (const RunError& error) {
      failure = error.what();
    }
  });
  for (const std::string& error : errors) CHECK(error.empty());
  CHECK(failure == "rank 1 stopped the run: the disk is full");
}

}  // namespace dstrain
