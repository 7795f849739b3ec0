// GPU builds without code for compute capability 9.0 have none of these kernels.
#include "kernels/cuda/attention/hopper/hopper.cuh"

namespace dstrain::DSTRAIN_BACKEND {

template <class T>
bool launch_hopper_forward(const AttentionArguments&, int64_t, const LaunchContext&) {
  return false;
}
template bool launch_hopper_forward<bf16>(const AttentionArguments&, int64_t, const LaunchContext&);
template bool launch_hopper_forward<f16>(const AttentionArguments&, int64_t, const LaunchContext&);

template <class T>
bool launch_hopper_gradients(const AttentionArguments&, int64_t, const LaunchContext&) {
  return false;
}
template bool launch_hopper_gradients<bf16>(const AttentionArguments&, int64_t,
                                            const LaunchContext&);
template bool launch_hopper_gradients<f16>(const AttentionArguments&, int64_t,
                                           const LaunchContext&);

}  // namespace dstrain::DSTRAIN_BACKEND
