#include "runtime/engine/step/queues/comm_queue.h"

#include <array>
#include <catch2/catch.hpp>
#include <numeric>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/core/error.h"

using namespace dstrain;

namespace {

constexpr int kPosted = 50;

Tensor tensor(std::vector<float>& values) {
  return {values.data(), {static_cast<int64_t>(values.size())}, DType::f32};
}

std::unique_ptr<CommQueue> make_queue(Communicator& comm, const Backend& backend, size_t most,
                                      bool own_thread) {
  const std::array<Communicator*, 1> channels{&comm};
  return make_comm_queue(channels, backend, {&most, 1}, own_thread);
}

}  // namespace

TEST_CASE("collectives complete in order, and what they wrote is there when they do") {
  const bool own_thread = GENERATE(false, true);
  SelfComm comm;
  const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
  const auto queue = make_queue(comm, backend, kPosted, own_thread);
  std::vector<std::vector<float>> to(kPosted, std::vector<float>(1000));
  std::vector<float> from(1000);
  std::iota(from.begin(), from.end(), 1.0f);
  for (int step = 0; step < 20; ++step) {
    for (auto& values : to) values.assign(1000, 0.0f);
    for (auto& values : to) {
      queue->post(0, OpKind::all_gather, tensor(from), tensor(values));
      queue->poll();
    }
    queue->wait(0, kPosted / 2);
    for (int i = 0; i < kPosted / 2; ++i) CHECK(to[static_cast<size_t>(i)] == from);
    queue->wait(0, kPosted);
    CHECK(to.back() == from);
    for (size_t i = 0; i < kPosted; ++i) {
      const TimeSpan times = queue->times(0, i);
      CHECK(times.begin_ns > 0);
      CHECK(times.end_ns >= times.begin_ns);
    }
    queue->restart();
  }
}

TEST_CASE("what the communicator throws comes out where it is waited for") {
  const bool own_thread = GENERATE(false, true);
  SelfComm comm;
  const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
  const auto queue = make_queue(comm, backend, 2, own_thread);
  std::vector<float> values(10);
  comm.abort("the disk is full");
  CHECK_THROWS_WITH(
      [&] {
        queue->post(0, OpKind::all_reduce, tensor(values), tensor(values));
        queue->wait(0, 1);
      }(),
      Catch::Contains("the disk is full"));
}

TEST_CASE("a queue that is left in the middle of a step ends") {
  SelfComm comm;
  std::vector<float> values(1000);
  for (const bool own_thread : {false, true}) {
    const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
    const auto queue = make_queue(comm, backend, 10, own_thread);
    for (int i = 0; i < 10; ++i) queue->post(0, OpKind::all_reduce, tensor(values), tensor(values));
  }
  SUCCEED();
}

TEST_CASE("a step may only end when its collectives have") {
  SelfComm comm;
  std::vector<float> values(10);
  const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
  const auto queue = make_queue(comm, backend, 1, false);
  queue->post(0, OpKind::all_reduce, tensor(values), tensor(values));
  CHECK_THROWS_AS(queue->restart(), InternalError);
}

TEST_CASE("each channel counts its own collectives") {
  const bool own_thread = GENERATE(false, true);
  SelfComm comm, other(&comm);
  const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
  const std::array<Communicator*, 2> channels{&comm, &other};
  const std::array<size_t, 2> most{1, 3};
  const auto queue = make_comm_queue(channels, backend, most, own_thread);
  std::vector<float> from(1000, 2.0f), to(1000), last(1000);
  for (int step = 0; step < 20; ++step) {
    to.assign(1000, 0.0f);
    last.assign(1000, 0.0f);
    queue->post(1, OpKind::all_reduce, tensor(from), tensor(from));
    queue->post(0, OpKind::all_gather, tensor(from), tensor(to));
    queue->post(1, OpKind::all_reduce, tensor(from), tensor(from));
    queue->post(1, OpKind::all_gather, tensor(from), tensor(last));
    queue->wait(0, 1);
    CHECK(to == from);
    queue->wait(1, 3);
    CHECK(last == from);
    for (size_t i = 0; i < 3; ++i) CHECK(queue->times(1, i).end_ns >= queue->times(1, i).begin_ns);
    queue->restart();
  }
}
