#include "kernels/cpu/decode/decode.h"

namespace dstrain {

int64_t decode_workspace_bytes(const KernelSpec& spec) {
  return spec.op == OpKind::cached_attention ? simd::cached_attention_workspace(spec) : 0;
}

std::unique_ptr<Kernel> make_decode(const KernelSpec& spec) {
  if (spec.op == OpKind::row_linear) return simd::make_row_linear(spec);
  if (spec.op == OpKind::grouped_row_linear) return simd::make_grouped_row_linear(spec);
  if (spec.op == OpKind::cached_attention) return simd::make_cached_attention(spec);
  return nullptr;
}

}  // namespace dstrain
