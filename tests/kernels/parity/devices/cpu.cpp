#include <cstdio>
#include <cstdlib>

#include "kernels/cpu/cpu_library.h"
#include "runtime/core/isa/isa.h"
#include "tests/kernels/parity/test_device.h"

namespace dstrain::parity {
namespace {

class Cpu final : public TestDevice {
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

// Exits with ctest's code for a skipped test if DSTRAIN_MAX_ISA names an instruction set that the CPU lacks.
const TestDevice& test_device() {
  const char* asked = std::getenv("DSTRAIN_MAX_ISA");
  if (asked != nullptr && *asked != '\0' && max_isa() < isa_named(asked)) {
    std::printf("skipped: DSTRAIN_MAX_ISA=%s, but the processor ends at %s\n", asked,
                std::string(name_of(max_isa())).c_str());
    std::exit(77);
  }
  static const Cpu cpu;
  return cpu;
}

}  // namespace dstrain::parity
