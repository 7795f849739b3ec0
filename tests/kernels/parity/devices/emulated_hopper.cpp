#include "tests/kernels/parity/devices/emulated_gpu.h"

namespace dstrain::parity {

const TestDevice& test_device() {
  static const EmulatedGpu hopper(true);
  return hopper;
}

}  // namespace dstrain::parity
