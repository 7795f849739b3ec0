// GPU builds without code for compute capability 9.0 have none of these kernels.
#include "kernels/cuda/attention/hopper/hopper.cuh"

namespace dstrain::DSTRAIN_BACKEND {

bool launch_hopper_forward(const AttentionArguments&, int64_t, const LaunchContext&) {
  return false;
}
bool launch_hopper_gradients(const AttentionArguments&, int64_t, const LaunchContext&) {
  return false;
}

}  // namespace dstrain::DSTRAIN_BACKEND
