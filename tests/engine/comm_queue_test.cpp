#include "runtime/engine/step/comm_queue.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/core/error.h"

using namespace dstrain;

namespace {

constexpr int kCollectives = 50;

Tensor tensor(std::vector<float>& values) {
  return {values.data(), {static_cast<int64_t>(values.size())}, DType::f32};
}

}  // namespace

TEST_CASE("collectives complete in order, and what they wrote is there when they do") {
  const bool own_thread = GENERATE(false, true);
  SelfComm comm;
  const Backend backend = make_backend(implementations(), "cpu");
  const auto queue = make_comm_queue(comm, backend, kCollectives, own_thread);
  std::vector<std::vector<float>> to(kCollectives, std::vector<float>(1000));
  std::vector<float> from(1000);
  std::iota(from.begin(), from.end(), 1.0f);
  for (int step = 0; step < 20; ++step) {
    for (auto& values : to) values.assign(1000, 0.0f);
    for (auto& values : to) {
      queue->post(OpKind::all_gather, tensor(from), tensor(values));
      queue->poll();
    }
    queue->wait(kCollectives / 2);
    for (int i = 0; i < kCollectives / 2; ++i) CHECK(to[static_cast<size_t>(i)] == from);
    queue->wait(kCollectives);
    CHECK(to.back() == from);
    for (size_t i = 0; i < kCollectives; ++i) {
      const TimeSpan times = queue->times(i);
      CHECK(times.begin_ns > 0);
      CHECK(times.end_ns >= times.begin_ns);
    }
    queue->restart();
  }
}

TEST_CASE("what the communicator throws comes out where it is waited for") {
  const bool own_thread = GENERATE(false, true);
  SelfComm comm;
  const Backend backend = make_backend(implementations(), "cpu");
  const auto queue = make_comm_queue(comm, backend, 2, own_thread);
  std::vector<float> values(10);
  comm.abort("the disk is full");
  CHECK_THROWS_WITH(
      [&] {
        queue->post(OpKind::all_reduce, tensor(values), tensor(values));
        queue->wait(1);
      }(),
      Catch::Contains("the disk is full"));
}

TEST_CASE("a queue that is left in the middle of a step ends") {
  SelfComm comm;
  std::vector<float> values(1000);
  for (const bool own_thread : {false, true}) {
    const Backend backend = make_backend(implementations(), "cpu");
    const auto queue = make_comm_queue(comm, backend, 10, own_thread);
    for (int i = 0; i < 10; ++i) queue->post(OpKind::all_reduce, tensor(values), tensor(values));
  }
  SUCCEED();
}

TEST_CASE("a step may only end when its collectives have") {
  SelfComm comm;
  std::vector<float> values(10);
  const Backend backend = make_backend(implementations(), "cpu");
  const auto queue = make_comm_queue(comm, backend, 1, false);
  queue->post(OpKind::all_reduce, tensor(values), tensor(values));
  CHECK_THROWS_AS(queue->restart(), InternalError);
}
