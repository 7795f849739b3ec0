#include <cstring>

#include "runtime/core/device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

class CpuEvent final : public Event {
 public:
  void record(Stream&) override {}
  void synchronize() override {}
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
};

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "cpu"; }
  DeviceBytes memory() const override { return {}; }
  Memory allocate(int64_t bytes, const std::string& what) override {
    return Memory::anonymous(bytes, what);
  }
  Memory pinned(int64_t bytes, const std::string& what) override {
    return Memory::anonymous(bytes, what);
  }
  std::shared_ptr<void> pin(std::byte*, int64_t) override { return nullptr; }
  void populate(const Memory& memory, int threads) const override {
    memory.populate(threads, "the plan");
  }
  void download(void* host, const void* from, int64_t bytes) override {
    std::memcpy(host, from, static_cast<size_t>(bytes));
  }
  void upload(void* to, const void* host, int64_t bytes) override {
    std::memcpy(to, host, static_cast<size_t>(bytes));
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  void attach_thread() override {}
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

std::unique_ptr<Device> make_device(const std::string& setting, int index) {
  if (setting == "cuda") return make_cuda_device(index);
  if (setting == "emulated") return make_emulated_device();
  check(setting == "cpu", "'{}' names no device", setting);
  return make_cpu_device();
}

}  // namespace dstrain
