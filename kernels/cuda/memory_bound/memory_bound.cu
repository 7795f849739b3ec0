#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/op_table.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

using Maker = OpMaker<const LaunchContext&>;

constexpr Maker kOps[] = {
    {OpKind::embed, make_embed},
    {OpKind::embed_token_grad, make_embed_token_grad, embed_token_grad_workspace},
    {OpKind::embed_position_grad, make_embed_position_grad},
    {OpKind::layer_norm, make_layer_norm},
    {OpKind::layer_norm_input_grad, make_layer_norm_input_grad},
    {OpKind::layer_norm_weight_grad, make_layer_norm_weight_grad, layer_norm_weight_grad_workspace},
    {OpKind::activation, make_activation},
    {OpKind::activation_grad, make_activation_grad},
    {OpKind::add, make_add},
    {OpKind::add_dropout, make_add_dropout},
    {OpKind::dropout_grad, make_dropout_grad},
    {OpKind::cross_entropy, make_cross_entropy, cross_entropy_workspace},
    {OpKind::sum_rows, make_sum_rows, sum_rows_workspace},
    {OpKind::cast, make_cast},
    {OpKind::accumulate, make_accumulate},
    {OpKind::round_wire, make_round_wire},
    {OpKind::sum_squares, make_sum_squares, sum_squares_workspace},
    {OpKind::adam, make_adam},
    {OpKind::adagrad, make_adagrad},
    {OpKind::lion, make_lion},
    {OpKind::lamb_direction, make_lamb_direction},
    {OpKind::lamb, make_lamb},
    {OpKind::sgd, make_sgd},
    {OpKind::muon_momentum, make_muon_momentum},
    {OpKind::muon, make_muon},
    {OpKind::quantize, make_quantize},
    {OpKind::dequantize, make_dequantize},
    {OpKind::quantize_int4, make_quantize_int4},
    {OpKind::requantize_int4, make_requantize_int4},
    {OpKind::sum_int4, make_sum_int4},
    {OpKind::error_squares, make_error_squares, error_squares_workspace},
};

}  // namespace

int64_t memory_bound_workspace_bytes(const KernelSpec& spec) {
  const Maker* maker = find_maker(kOps, spec.op);
  return maker && maker->workspace ? maker->workspace(spec) : 0;
}

std::unique_ptr<Kernel> make_memory_bound(const KernelSpec& spec, const LaunchContext& context) {
  const Maker* maker = find_maker(kOps, spec.op);
  return maker ? maker->make(spec, context) : nullptr;
}

}  // namespace dstrain::DSTRAIN_BACKEND
