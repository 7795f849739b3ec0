#include "tests/kernels/parity/devices/emulated_gpu.h"

namespace dstrain::parity {

const TestDevice& test_device() {
  static const EmulatedGpu emulated(false);
  return emulated;
}

}  // namespace dstrain::parity
