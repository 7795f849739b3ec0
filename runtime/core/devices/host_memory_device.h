// HostMemoryDevice: the base class of the CPU and the emulated device, whose memory is the host's.
#pragma once

#include <cstring>

#include "runtime/core/devices/device.h"

namespace dstrain {

class HostMemoryDevice : public Device {
 public:
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
    if (bytes > 0) std::memcpy(host, from, static_cast<size_t>(bytes));
  }
  void upload(void* to, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, host, static_cast<size_t>(bytes));
  }
  void attach_thread() override {}
};

}  // namespace dstrain
