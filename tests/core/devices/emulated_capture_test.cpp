// Captures of emulated streams, by CUDA's rules.
#include "runtime/core/devices/emulated_capture.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>

#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Catch::Contains;

EmulatedStream& thread_of(Stream& stream) {
  return *static_cast<EmulatedStream*>(stream.native());
}

// Two streams of a device and events between them.
struct TwoStreams {
  std::unique_ptr<Device> device = make_emulated_device();
  std::unique_ptr<Stream> first = device->make_stream(), second = device->make_stream();
  std::unique_ptr<Event> fork = device->make_event(), join = device->make_event();
};

TEST_CASE("a capture has the work of all streams that wait for its events, in their order") {
  TwoStreams s;
  std::atomic<int> value{0}, seen{0};
  s.first->begin_capture();
  thread_of(*s.first).submit([&] { value += 1; });
  s.fork->record(*s.first);
  CHECK_FALSE(s.second->capturing());
  s.second->wait(*s.fork);
  CHECK(s.second->capturing());
  thread_of(*s.second).submit([&] { value = value * 10; });
  s.join->record(*s.second);
  s.first->wait(*s.join);
  thread_of(*s.first).submit([&] { seen = value.load(); });
  const auto graph = s.first->end_capture();
  CHECK_FALSE(s.first->capturing());
  CHECK_FALSE(s.second->capturing());
  CHECK(value == 0);
  graph->launch(*s.first);
  graph->launch(*s.first);
  s.first->synchronize();
  CHECK(seen == 110);  // ((0 + 1) * 10 + 1) * 10
}

TEST_CASE("two streams of a graph run beside each other") {
  TwoStreams s;
  std::atomic<bool> there{false};
  s.first->begin_capture();
  s.fork->record(*s.first);
  s.second->wait(*s.fork);
  thread_of(*s.second).submit([&] {
    while (!there) std::this_thread::yield();
  });
  s.join->record(*s.second);
  thread_of(*s.first).submit([&] { there = true; });
  s.first->wait(*s.join);
  const auto graph = s.first->end_capture();
  graph->launch(*s.first);
  s.first->synchronize();  // comes back only if the first stream has not waited for the second
  CHECK(there);
}

TEST_CASE("what a stream of a graph fails with is thrown where it is waited for") {
  TwoStreams s;
  s.first->begin_capture();
  s.fork->record(*s.first);
  s.second->wait(*s.fork);
  thread_of(*s.second).submit([] { throw std::runtime_error("broken kernel"); });
  s.join->record(*s.second);
  s.first->wait(*s.join);
  const auto graph = s.first->end_capture();
  graph->launch(*s.first);
  CHECK_THROWS_WITH(s.first->synchronize(), "broken kernel");
}

TEST_CASE("an event that was last recorded in a capture is of no use outside") {
  TwoStreams s;
  s.fork->record(*s.first);  // outside: replaced by the record in the capture
  s.first->begin_capture();
  s.fork->record(*s.first);
  CHECK_THROWS_WITH(s.fork->synchronize(), Contains("907"));
  const auto graph = s.first->end_capture();
  graph->launch(*s.first);
  CHECK_THROWS_WITH(s.second->wait(*s.fork), Contains("907"));
  CHECK_THROWS_WITH(s.fork->reached(), Contains("907"));
  s.fork->record(*s.first);
  s.second->wait(*s.fork);
  s.second->synchronize();
  CHECK(s.fork->reached());
}

TEST_CASE(
    "a capture refuses events from outside, streams that are left behind and waits of the host") {
  TwoStreams s;
  s.join->record(*s.second);
  s.first->begin_capture();
  CHECK_THROWS_WITH(s.first->wait(*s.join), Contains("905"));
  CHECK_THROWS_WITH(s.first->synchronize(), Contains("900"));
  CHECK_THROWS_AS(s.first->begin_capture(), RunError);
  s.fork->record(*s.first);
  s.second->wait(*s.fork);
  CHECK_THROWS_AS(s.second->end_capture(), RunError);
  thread_of(*s.second).submit([] {});
  CHECK_THROWS_WITH(s.first->end_capture(), Contains("904"));
  CHECK_FALSE(s.second->capturing());
  CHECK_THROWS_AS(s.first->end_capture(), RunError);
}

TEST_CASE("a stream takes part in one capture at a time") {
  TwoStreams s;
  s.first->begin_capture();
  s.fork->record(*s.first);
  s.second->begin_capture();
  CHECK_THROWS_WITH(s.second->wait(*s.fork), Contains("906"));
  s.second->end_capture();
  s.first->end_capture();
}

}  // namespace
}  // namespace dstrain
