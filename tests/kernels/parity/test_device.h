// TestDevice: the device whose kernels a test program tests. A program is linked with one file of
// tests/kernels/parity/devices.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain::parity {

class TestDevice {
 public:
  virtual ~TestDevice() = default;
  virtual std::unique_ptr<Kernel> make(const KernelSpec& spec) const = 0;
  virtual int64_t workspace_bytes(const KernelSpec& spec) const = 0;
  // Returns whether the processor executes the kernels of a GPU, thread by thread.
  virtual bool is_emulated() const { return false; }
  // Makes the `bytes` bytes at `host` available to kernels and returns their address on the device.
  virtual void* to_device(void* host, int64_t) const { return host; }
  // Returns when all kernels have run and everything passed to to_device has been copied back to its host
  // address. Throws what a kernel threw.
  virtual void synchronize() const {}
};

// The CPU kernels of one family, given its two functions (such as make_product, product_workspace_bytes).
class CpuFamily final : public TestDevice {
 public:
  using Make = std::unique_ptr<Kernel>(const KernelSpec&);
  using Bytes = int64_t(const KernelSpec&);

  constexpr CpuFamily(Make* made_by, Bytes* bytes) : make_(made_by), bytes_(bytes) {}
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override { return make_(spec); }
  int64_t workspace_bytes(const KernelSpec& spec) const override { return bytes_(spec); }

 private:
  Make* make_;
  Bytes* bytes_;
};

// Returns the device that this program tests.
const TestDevice& test_device();

}  // namespace dstrain::parity
