#include "kernels/cpu/cpu_library.h"
#include "tests/kernels/backend.h"

namespace dstrain::parity {
namespace {

class Cpu final : public Backend {
 public:
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    return library_->make(spec);
  }
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return library_->workspace_bytes(spec);
  }

 private:
  std::unique_ptr<KernelLibrary> library_ = make_cpu_library();
};

}  // namespace

const Backend& backend() {
  static const Cpu cpu;
  return cpu;
}

}  // namespace dstrain::parity
