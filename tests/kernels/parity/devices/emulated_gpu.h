// An emulated GPU as the device under test, with or without the kernels for Hopper, and with a seeded fault.
#pragma once

#include <memory>

#include "kernels/cuda/emulation/grid.h"
#include "kernels/cuda/library.h"
#include "runtime/core/devices/emulated_stream.h"
#include "tests/kernels/parity/test_device.h"

namespace dstrain::parity {

class EmulatedGpu final : public TestDevice {
 public:
  explicit EmulatedGpu(bool hopper, emulated::Fault fault = emulated::Fault::none)
      : library_(make_emulated_library(*stream_, hopper)) {
    stream_->submit([fault] { emulated::seed_fault(fault); });
  }
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    return library_->make(spec);
  }
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return library_->workspace_bytes(spec);
  }
  bool is_emulated() const override { return true; }
  void synchronize() const override { stream_->synchronize(); }

 private:
  std::unique_ptr<EmulatedStream> stream_ = std::make_unique<EmulatedStream>();
  std::unique_ptr<KernelLibrary> library_;
};

}  // namespace dstrain::parity
