#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {

int64_t memory_bound_workspace_bytes(const KernelSpec&) {
  return 0;
}

std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec, const LaunchContext& context) {
  switch (spec.op) {
    case OpKind::activation:
      return make_activation(spec, context);
    case OpKind::activation_grad:
      return make_activation_grad(spec, context);
    case OpKind::add:
      return make_add(spec, context);
    default:
      return nullptr;
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
