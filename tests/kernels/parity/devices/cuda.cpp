#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "kernels/cuda/library.h"
#include "runtime/core/devices/cuda_device.h"
#include "tests/kernels/parity/test_device.h"

namespace dstrain::parity {
namespace {

class Cuda final : public TestDevice {
 public:
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    return library_->make(spec);
  }
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return library_->workspace_bytes(spec);
  }
  void* to_device(void* host, int64_t bytes) const override {
    mirrors_.push_back({host, bytes, memory_of(bytes)});
    device_->upload(mirrors_.back().memory.data(), host, bytes);
    return mirrors_.back().memory.data();
  }
  void synchronize() const override {
    stream_->synchronize();
    for (Mirror& m : mirrors_) {
      device_->download(m.host, m.memory.data(), m.bytes);
      spare_bytes_ += m.bytes;
      spare_.emplace(m.bytes, std::move(m.memory));
    }
    mirrors_.clear();
    if (spare_bytes_ > kMostSpareBytes) {
      spare_.clear();
      spare_bytes_ = 0;
    }
  }

 private:
  struct Mirror {
    void* host;
    int64_t bytes;
    Memory memory;
  };
  static constexpr int64_t kMostSpareBytes = int64_t{1} << 28;

  // An operand is an allocation of its own and of its size, so that memcheck finds accesses beside it. Reserving takes
  // longer than most kernels, so allocations are used again.
  Memory memory_of(int64_t bytes) const {
    const auto found = spare_.find(bytes);
    if (found == spare_.end()) return device_->allocate(bytes, "an operand of a test");
    Memory memory = std::move(found->second);
    spare_.erase(found);
    spare_bytes_ -= bytes;
    return memory;
  }

  std::unique_ptr<Device> device_ = make_cuda_device(0);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  std::unique_ptr<KernelLibrary> library_ =
      make_cuda_library(static_cast<CUstream_st*>(stream_->native()));
  mutable std::vector<Mirror> mirrors_;
  mutable std::multimap<int64_t, Memory> spare_;  // by their bytes
  mutable int64_t spare_bytes_ = 0;
};

}  // namespace

// Exits with ctest's code for a skipped test if there is no GPU.
const TestDevice& test_device() {
  if (cuda_device_count() == 0) {
    std::printf("skipped: %s\n", why_no_cuda().c_str());
    std::exit(77);
  }
  static const Cuda cuda;
  return cuda;
}

}  // namespace dstrain::parity
