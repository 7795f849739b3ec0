// Replaces the GPU in a build without CUDA.
#include "benchmarks/cuda/gpu.h"
#include "runtime/core/error.h"

namespace dstrain::bench {

std::unique_ptr<Gpu> make_gpu() {
  fail_user("this build of dstrain has no CUDA: configure it with the preset `cuda`");
}

}  // namespace dstrain::bench
