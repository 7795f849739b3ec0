#include "runtime/core/devices/cpu_device.h"

#include <cstring>

#include "runtime/core/devices/host_memory_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

class CpuEvent final : public Event {
 public:
  void record(Stream&) override {}
  void synchronize() override {}
  bool reached() override { return true; }
};

class CpuStream final : public Stream {
 public:
  void copy(void* to, const void* from, int64_t bytes) override {
    if (to != from && bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
  }
  void zero(void* at, int64_t bytes) override { std::memset(at, 0, static_cast<size_t>(bytes)); }
  void wait(Event&) override {}
  void synchronize() override {}
  void* native() override { return nullptr; }
  bool begin_capture() override { return false; }
  std::unique_ptr<Graph> end_capture() override { throw InternalError("the CPU has no graphs"); }
  bool capturing() override { return false; }
};

class CpuDevice final : public HostMemoryDevice {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "cpu"; }
  std::unique_ptr<Stream> make_stream(StreamPriority) override {
    return std::make_unique<CpuStream>();
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace dstrain
