// Replaces the CUDA library in a build without CUDA.
#include "kernels/cuda/library.h"
#include "runtime/core/error.h"

namespace dstrain::cuda {

std::unique_ptr<KernelLibrary> make_library(CUstream_st*, bool) {
  fail_user(
      "this build of dstrain has no CUDA kernels: configure it with the preset `cuda` on a machine "
      "with the CUDA toolkit, or use --device cpu");
}

}  // namespace dstrain::cuda
