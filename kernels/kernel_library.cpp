#include "kernels/kernel_library.h"

#include "kernels/cpu/cpu_library.h"
#include "kernels/cuda/library.h"

namespace dstrain {

std::unique_ptr<KernelLibrary> make_kernel_library(DeviceKind device, void* stream) {
  switch (device) {
    case DeviceKind::emulated:
      return emulated::make_library(static_cast<EmulatedStream*>(stream));
    case DeviceKind::cuda:
      return cuda::make_library(static_cast<CUstream_st*>(stream));
    case DeviceKind::cpu:
      break;
  }
  return make_cpu_library();
}

}  // namespace dstrain
