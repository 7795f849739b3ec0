#include "runtime/core/devices/device.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/core/devices/cpu_device.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/devices/emulated_stream.h"
#include "runtime/core/devices/make_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Blocks an emulated stream until open(); does nothing on devices without threads.
class Gate {
 public:
  explicit Gate(Stream& stream) {
    if (auto* thread = static_cast<EmulatedStream*>(stream.native()))
      thread->submit([this] {
        while (!open_) std::this_thread::yield();
      });
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

std::vector<std::unique_ptr<Device>> devices() {
  std::vector<std::unique_ptr<Device>> list;
  list.push_back(make_cpu_device());
  list.push_back(make_emulated_device());
  if (cuda_device_count() > 0) list.push_back(make_cuda_device(0));
  return list;
}

TEST_CASE("values go to a device and come back, by stream and at once") {
  for (const auto& device : devices()) {
    INFO(device->name());
    constexpr int64_t n = 1000, bytes = n * 4;
    const Memory there = device->allocate(bytes, "a test"),
                 other = device->allocate(bytes, "a test");
    const Memory host = device->pinned(bytes, "a test"), back = device->pinned(bytes, "a test");
    auto* values = reinterpret_cast<int32_t*>(host.data());
    std::iota(values, values + n, 7);
    const auto stream = device->make_stream();
    stream->copy(there.data(), host.data(), bytes);
    stream->copy(other.data(), there.data(), bytes);
    stream->zero(other.data(), 8);
    stream->copy(back.data(), other.data(), bytes);
    stream->synchronize();
    const auto* seen = reinterpret_cast<const int32_t*>(back.data());
    CHECK(seen[0] == 0);
    CHECK(seen[1] == 0);
    CHECK(seen[2] == 9);
    CHECK(seen[n - 1] == n + 6);

    std::vector<int32_t> plain(n, 5);
    device->upload(there.data(), plain.data(), bytes);
    std::vector<int32_t> answer(n);
    device->download(answer.data(), there.data(), bytes);
    CHECK(answer == plain);
  }
}

TEST_CASE("fresh device memory is zero") {
  for (const auto& device : devices()) {
    const Memory memory = device->allocate(4096, "a test");
    std::vector<char> seen(4096, 1);
    device->download(seen.data(), memory.data(), 4096);
    CHECK(seen == std::vector<char>(4096, 0));
  }
}

TEST_CASE("an event holds a stream until another one has come that far") {
  for (const auto& device : devices()) {
    INFO(device->name());
    const Memory source = device->allocate(8, "a test"), target = device->allocate(8, "a test");
    const Memory host = device->pinned(16, "a test");
    auto* values = reinterpret_cast<int64_t*>(host.data());
    values[0] = 42;
    const auto first = device->make_stream(), second = device->make_stream();
    const auto done = device->make_event();
    done->synchronize();  // never recorded: reached
    second->wait(*done);
    Gate gate(device->kind() == DeviceKind::emulated ? *first : *make_cpu_device()->make_stream());
    first->copy(source.data(), values, 8);
    done->record(*first);
    second->wait(*done);
    second->copy(target.data(), source.data(), 8);
    second->copy(values + 1, target.data(), 8);
    gate.open();
    second->synchronize();
    CHECK(values[1] == 42);
    done->synchronize();
  }
}

TEST_CASE("whoever waits for a stream that failed learns why") {
  const auto device = make_emulated_device();
  const auto failing = device->make_stream(), waiting = device->make_stream();
  const auto event = device->make_event();
  static_cast<EmulatedStream*>(failing->native())->submit([] {
    throw std::runtime_error("broken kernel");
  });
  event->record(*failing);
  waiting->wait(*event);
  CHECK_THROWS_WITH(event->synchronize(), "broken kernel");
  CHECK_THROWS_WITH(waiting->synchronize(), "broken kernel");
}

TEST_CASE("captured work runs as often as it is launched, and not before") {
  for (const auto& device : devices()) {
    INFO(device->name());
    const auto stream = device->make_stream();
    if (!stream->begin_capture()) {
      CHECK(device->is_host());
      continue;
    }
    const Memory memory = device->allocate(24, "a test");
    // Each launch moves the three values on by one place.
    stream->copy(memory.data() + 16, memory.data() + 8, 8);
    stream->copy(memory.data() + 8, memory.data(), 8);
    const auto graph = stream->end_capture();
    const int64_t before[3] = {1, 0, 0};
    device->upload(memory.data(), before, 24);
    stream->synchronize();
    int64_t seen[3];
    device->download(seen, memory.data(), 24);
    CHECK(seen[1] == 0);
    graph->launch(*stream);
    graph->launch(*stream);
    stream->synchronize();
    device->download(seen, memory.data(), 24);
    CHECK(seen[2] == 1);
  }
}

TEST_CASE("a device that is not there says what to do") {
  if (cuda_device_count() > 0) {
    CHECK(why_no_cuda().empty());
    return;
  }
  CHECK_THROWS_AS(make_device(DeviceChoice::cuda, 0), UserError);
  CHECK(why_no_cuda().find("--device cpu") != std::string::npos);
}

}  // namespace
}  // namespace dstrain
