#include "kernels/cpu/simd/simd.h"

#include "hwy/targets.h"
#include "kernels/cpu/simd/kernels.h"
#include "runtime/core/isa.h"

namespace dstrain {

void limit_highway_targets() {
  static const bool limited = [] {
    if (max_isa() < Isa::avx512) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
    if (max_isa() < Isa::avx2) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL | HWY_AVX2);
    return true;
  }();
  static_cast<void>(limited);
}

int64_t simd_workspace_bytes(const KernelSpec& spec) {
  switch (spec.op) {
    case OpKind::cross_entropy:
      return simd::cross_entropy_workspace(spec);
    case OpKind::layer_norm_weight_grad:
      return simd::layer_norm_weight_grad_workspace(spec);
    case OpKind::sum_rows:
      return simd::sum_rows_workspace(spec);
    case OpKind::sum_squares:
      return simd::sum_squares_workspace(spec);
    default:
      return 0;
  }
}

std::unique_ptr<Kernel> make_simd(const KernelSpec& spec) {
  limit_highway_targets();
  switch (spec.op) {
    case OpKind::embed:
      return simd::make_embed(spec);
    case OpKind::embed_token_grad:
      return simd::make_embed_token_grad(spec);
    case OpKind::embed_position_grad:
      return simd::make_embed_position_grad(spec);
    case OpKind::layer_norm:
      return simd::make_layer_norm(spec);
    case OpKind::layer_norm_input_grad:
      return simd::make_layer_norm_input_grad(spec);
    case OpKind::layer_norm_weight_grad:
      return simd::make_layer_norm_weight_grad(spec);
    case OpKind::activation:
      return simd::make_activation(spec);
    case OpKind::activation_grad:
      return simd::make_activation_grad(spec);
    case OpKind::add:
      return simd::make_add(spec);
    case OpKind::add_dropout:
      return simd::make_add_dropout(spec);
    case OpKind::dropout_grad:
      return simd::make_dropout_grad(spec);
    case OpKind::cross_entropy:
      return simd::make_cross_entropy(spec);
    case OpKind::sum_rows:
      return simd::make_sum_rows(spec);
    case OpKind::cast:
      return simd::make_cast(spec);
    case OpKind::accumulate:
      return simd::make_accumulate(spec);
    case OpKind::round_wire:
      return simd::make_round_wire(spec);
    case OpKind::sum_squares:
      return simd::make_sum_squares(spec);
    case OpKind::adam:
      return simd::make_adam(spec);
    case OpKind::sgd:
      return simd::make_sgd(spec);
    default:
      return nullptr;
  }
}

}  // namespace dstrain
