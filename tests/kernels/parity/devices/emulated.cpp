#include "kernels/cuda/library.h"
#include "runtime/core/devices/emulated_stream.h"
#include "tests/kernels/parity/test_device.h"

namespace dstrain::parity {
namespace {

class Emulated final : public TestDevice {
 public:
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
  std::unique_ptr<KernelLibrary> library_ = make_emulated_library(*stream_);
};

}  // namespace

const TestDevice& test_device() {
  static const Emulated emulated;
  return emulated;
}

}  // namespace dstrain::parity
