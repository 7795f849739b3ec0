// The op list: every computation a plan may hold, with its attributes. The order of the operands
// stated here is the contract between the rules (runtime/ir/ops, one file per op: shapes, cost,
// backward) and the bodies (kernels/*).
//
// Letters: B samples of a micro-batch, T tokens of a sample, R = B*T rows, C channels, H heads,
// K/N in and out features, V vocabulary. "run" is the run's dtype (f32, bf16 or f16). Operands
// marked ? may be absent. d_ is a gradient. Accumulators, statistics and weight gradients are f32.
#pragma once

#include <cstdint>
#include <string_view>

namespace dstrain {

enum class OpKind : uint8_t {
  // forward
  embed,          // ids i32 (R), token (V,C), position? (T,C) -> x (R,C)
  layer_norm,     // x (R,C), weight (C), bias (C) -> y (R,C), mean f32 (R), rstd f32 (R)
  linear,         // x (R,K), weight (N,K), bias? (N), packed? -> y (R,N) = act(x w^T + bias),
                  //   with gelu also pre? (R,N): what gelu saw
  activation,     // x (R,N) -> y (R,N)
  attention,      // qkv (R,3C): q,k,v, heads contiguous -> y (R,C), lse f32 (B,H,T)
  add_dropout,    // x (R,C), h (R,C) -> y (R,C) = x + dropout(h)
  cross_entropy,  // logits (R,V), targets i32 (R) -> loss f64 (1), d_logits? (may be logits)
  // backward: the input gradient and the weight gradient of an op are always two instructions
  embed_token_grad,        // d_x (R,C), ids i32 (R) -> d_token f32 (V,C)
  embed_position_grad,     // d_x (R,C) -> d_position f32 (T,C)
  layer_norm_input_grad,   // d_y (R,C), x, weight, mean, rstd, add? (R,C)-> d_x (R,C)  (+ add)
  layer_norm_weight_grad,  // d_y (R,C), x (R,C), mean, rstd -> d_weight f32 (C), d_bias f32 (C)
  linear_input_grad,       // d_y (R,N), weight (N,K), packed?, with gelu pre (R,K) -> d_x (R,K)
                           //   (with gelu times its slope at pre)
  linear_weight_grad,      // d_y (R,N), x (R,K) -> d_weight f32 (N,K)
  sum_rows,                // d_y (R,N) -> d_bias f32 (N)
  activation_grad,         // d_y (R,N), ref (R,N): relu: y, gelu: x -> d_x, may be d_y
  attention_grad,          // d_y (R,C), qkv, y, lse -> d_qkv (R,3C)
  dropout_grad,            // d_y (R,C) -> d_h (R,C)
  add,                     // a, b -> a + b
  pack_weight,             // weight (N,K) -> packed u8, as a product prefers it
  // boundary of a step, over flat ranges of a unit
  cast,         // x -> y in another dtype, rounded to nearest even
  accumulate,   // x (n), any dtype -> y f32 or run (n): y = x or y += x, rounded once
  round_wire,   // in place f32 (n): each element rounded to attrs.wire and back
  sum_squares,  // x f32 or run (n) -> s f64 (1): blocks of 4096, in order
  adam,         // grad f32 or run (n) -> master, m, v f32 (n), param? 16-bit (n); in place
  sgd,          // grad f32 or run (n) -> master, momentum? f32 (n), param? 16-bit (n); in place
  // work of the executor itself (no kernel)
  load_batch,        // -> inputs, targets i32 of all micro-batches; local target count
  zero,              // -> x = 0
  reduce_counts,     // sums the target count over ranks; sets d_loss
  all_reduce,        // x (n): its sum over the data-parallel group, in rank order, in place
  reduce_scatter,    // x (n) -> y (n / ranks): this rank's slice of the same sum
  all_gather,        // x (n / ranks) -> y (n): all ranks' slices; x may be this rank's part of y
  finish_gradients,  // sums norms and losses over ranks; sets norm, clip, skip, loss scale
};

inline constexpr int kOpKinds = static_cast<int>(OpKind::finish_gradients) + 1;
std::string_view name_of(OpKind op);  // as printed: "linear_input_grad"

enum class Activation : uint8_t { none, relu, gelu };  // gelu: GPT-2's tanh form

// Constant arguments of an op; each op reads the ones its line names.
struct OpAttrs {
  // linear and linear_input_grad (gelu only by the pass `fuse`), activation, activation_grad
  Activation activation = Activation::none;
  float dropout = 0;            // attention, attention_grad, add_dropout, dropout_grad
  uint32_t site = 0;            // dropout site, unique in the model (philox.h)
  int64_t heads = 0;            // attention
  int64_t seq_len = 0;          // T: embed, attention, add_dropout, dropout_grad (rows of a sample)
  float eps = 1e-5f;            // layer_norm, adam
  float weight_decay = 0;       // adam, sgd
  bool decoupled_decay = true;  // adam: AdamW (true) or L2 (false)
  float momentum = 0, dampening = 0;  // sgd
  bool nesterov = false;              // sgd
  uint8_t wire = 0;                   // round_wire: a DType
  int64_t rows = 0;                   // pack_weight: R of the product that reads the packed weight
  bool for_input_grad = false;        // pack_weight: packed for linear_input_grad (else for linear)
  bool operator==(const OpAttrs&) const = default;
};

}  // namespace dstrain
