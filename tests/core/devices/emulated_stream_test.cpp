#include "runtime/core/devices/emulated_stream.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <vector>

namespace dstrain {
namespace {

TEST_CASE("a stream runs its work in order and beside the caller") {
  EmulatedStream stream;
  std::atomic<bool> go{false};
  std::vector<int> seen;
  stream.submit([&] {
    while (!go) std::this_thread::yield();
  });
  for (int i = 0; i < 100; ++i) stream.submit([&seen, i] { seen.push_back(i); });
  go = true;  // reached only because submit() does not wait
  stream.synchronize();
  REQUIRE(seen.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(seen[static_cast<size_t>(i)] == i);
}

TEST_CASE("after a failure nothing of a stream runs, and every synchronize tells") {
  EmulatedStream stream;
  std::atomic<int> ran{0};
  stream.submit([] { throw std::runtime_error("broken kernel"); });
  stream.submit([&] { ++ran; });
  CHECK_THROWS_WITH(stream.synchronize(), "broken kernel");
  stream.submit([&] { ++ran; });
  CHECK_THROWS_WITH(stream.synchronize(), "broken kernel");
  CHECK(ran == 0);
}

TEST_CASE("a stream finishes its work before it ends") {
  std::atomic<int> ran{0};
  {
    EmulatedStream stream;
    for (int i = 0; i < 50; ++i) stream.submit([&] { ++ran; });
  }
  CHECK(ran == 50);
}

}  // namespace
}  // namespace dstrain
