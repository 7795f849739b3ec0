// Every op that a plan may contain, its operands and its attributes. The rules (runtime/ir/ops: shapes,
// cost, backward pass) and the kernels (kernels/*) both rely on the order of operands given here.
//
// Letters: B samples of a micro-batch, T tokens of a sample, R = B*T rows, C channels, H heads,
// K and N input and output features, V vocabulary. The values of a forward or backward op have one dtype (f32, bf16 or
// f16); "run" is the run's dtype, which parameters have. An operand marked ? may be absent. d_x is the gradient
// of x. Running sums, statistics and weight gradients are f32. documents i32 (R): where a sample holds several documents,
// of each row the row of its sample at which its document begins (InputRole::documents). Positions count from there, and
// queries see keys of their own document alone.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "runtime/core/blocks/weight_blocks.h"
#include "runtime/core/dtype.h"
#include "runtime/ir/rotary.h"

namespace dstrain {

// The ops that a plan may contain. The comment of an op lists what it reads -> what it writes.
enum class OpKind : uint8_t {
  // forward
  embed,       // ids i32 (R), token (V,C), position? (T,C), documents? -> x (R,C)
  layer_norm,  // x (R,C), weight (C), bias (C) -> y (R,C), mean f32 (R), rstd f32 (R)
  linear,  // x (R,K), weight (N,K), bias? (N), packed?, residual? (R,N) -> y (R,N) = act(x w^T + bias) + residual,
           //   with gelu also pre? (R,N): gelu's input
  activation,      // x (R,N) -> y (R,N)
  add_layer_norm,  // x (R,C), h (R,C), weight (C), bias (C) -> sum (R,C) = x + dropout(h), and of it y (R,C), mean, rstd
  // q (R,H*D), k, v (R,G*D) of H heads of queries and G of keys and values, head h of queries with head h / (H / G) of
  // these; or qkv (R,(H+2G)*D) of all three, one after the other in a row; documents? -> y (R,H*D), lse f32 (B,H,T)
  attention,
  add_dropout,  // x (R,C), h (R,C) -> y (R,C) = x + dropout(h)
  // x (R,C), weight (G) -> y (R,C), rstd f32 (R,C/G): each run of G columns by itself, y = weight * round(x * rstd)
  rms_norm,
  rotary,  // x (R,C), documents? -> y (R,C): pairs of columns of each head, rotated by the row's position (rotary.h)
  gated,   // gate (R,N), up (R,N) -> y (R,N) = act(gate) * up
  scale,   // x (n) -> y (n) = factor * x, may be x; backward: d_y -> d_x
  cross_entropy,  // logits (R,V), targets i32 (R), before? f64 (M) -> loss f64 (1), d_logits? (may be logits);
                  //   V may be padded; by_row: loss f64 (R), which a later one adds: its `before`
  // backward: the input gradient and the weight gradient of an op are two instructions, until the pass `join_norms`
  embed_token_grad,        // d_x (R,C), ids i32 (R) -> d_token f32 (V,C)
  embed_position_grad,     // d_x (R,C), documents? -> d_position f32 (P,C), P >= T; 0 from row T on
  layer_norm_input_grad,   // d_y (R,C), x, weight, mean, rstd, add? (R,C)-> d_x (R,C)  (+ add)
  layer_norm_weight_grad,  // d_y (R,C), x (R,C), mean, rstd -> d_weight f32 (C), d_bias f32 (C)
  // d_y (R,C), x (R,C), weight, mean, rstd, add? (R,C) -> d_x (R,C) (+ add), d_weight f32 (C), d_bias f32 (C)
  layer_norm_grad,
  // d_y (R,C), x (R,C), weight (G), rstd, add? (R,C) -> d_x (R,C) (+ add)
  rms_norm_input_grad,
  // d_y (R,C), x (R,C), rstd -> d_weight f32 (G)
  rms_norm_weight_grad,
  // d_y (R,C), documents? -> d_x (R,C), may be d_y: rotated back
  rotary_grad,
  // d_y (R,N), gate, up -> d_gate (R,N), may be d_y, d_up (R,N)
  gated_grad,
  linear_input_grad,   // d_y (R,N), weight (N,K), packed?, with gelu pre (R,K) -> d_x (R,K)
                       //   (with gelu times its slope at pre)
  linear_weight_grad,  // d_y (R,N), x (R,K) -> d_weight f32 (N,K)
  sum_rows,            // d_y (R,N) -> d_bias f32 (N)
  activation_grad,     // d_y (R,N), ref (R,N): relu: y, gelu: x -> d_x, may be d_y
  attention_grad,      // d_y (R,H*D), q, k, v or qkv, y, lse, documents? -> d_q, d_k, d_v or d_qkv
  dropout_grad,        // d_y (R,C) -> d_h (R,C)
  add,                 // a, b -> a + b
  pack_weight,         // weight (N,K) -> packed u8, in a product's layout
  unpack_weight,  // packed u8 (runtime/core/blocks/weight_blocks.h) -> y (N,K), of the run's dtype
  // at the boundary of a step, over flat ranges of a unit
  cast,            // x -> y in another dtype, rounded to nearest even
  accumulate,      // x (n), any dtype -> y f32 or run (n): y = x or y += x, rounded once
  round_wire,      // in place f32 (n): each element rounded to the wire dtype and back
  sum_squares,     // x f32 or run (n) -> s f64 (1): blocks of 4096, in order
  adam,            // grad f32 or run (n) -> master, m, v f32 or run (n), param? run (n); in place
  adagrad,         // grad f32 or run (n) -> master, sum f32 (n), param? 16-bit (n); in place
  lion,            // grad f32 or run (n) -> master, m f32 (n), param? 16-bit (n); in place
  lamb_direction,  // grad f32 or run (n), master f32 (n) -> m, v f32 (n) in place, direction f32 (n)
  lamb,  // direction f32 (n), square sums f64 -> master f32 (n), param? 16-bit (n); in place
  sgd,   // grad f32 or run (n) -> master, momentum? f32 (n), param? 16-bit (n); in place
  muon_momentum,  // grad f32 or run (n) -> m f32 (n) in place, direction f32 (n)
  orthogonalize,  // x f32 (N,K) -> y f32 (N,K), may be x
  muon,           // direction f32 (n) -> master f32 (n), param? 16-bit (n); in place
  quantize,       // x f32 or run (n) -> packed u8 (runtime/ir/quantized.h)
  dequantize,  // packed u8 (of equal parts: parts, bytes of one) -> y f32 or run (n): the parts in order
  // x f32 or run (n), equal parts, error? -> packed u8 (parts, bytes of one), in another order, next_error?
  quantize_int4,
  // packed u8 (K, M, bytes of a part), error? -> packed u8 (M, bytes): sums over K, packed again, next_error?
  requantize_int4,
  // packed u8 (K, M, bytes of a part), or (M, bytes) of one -> y f32 or run (n): y = sums over K, or y += them
  sum_int4,
  // low-rank factors of a matrix (N,K), and state of codecs (runtime/ir/ops/low_rank.h)
  gram_schmidt,  // x f32 (R,N) in place: its rows, one after the other, become orthogonal, of length 1
  random_factor,    // -> x f32 (n): uniform on [-1, 1), by the attributes and the number of updates
  project_rows,     // m f32 (N,K), b f32 (R,K) -> p f32 (R,N) = b m^T
  project_columns,  // m f32 (N,K), p f32 (R,N) -> b f32 (R,K) = p m
  // p f32 (R,N), b f32 (R,K), m f32 (N,K) -> m = p^T b in place, error? f32 (N,K) = m before - m / ranks
  expand_factors,
  add_error,  // error f32 (n) -> x f32 (n) in place: x += error * the step's loss scale
  // x f32 or u8 (n) -> y (n) = x, or f32 x / divisor, or f32 x / the step's loss scale; y stays if the step is skipped
  commit_state,
  update_buffer,  // sum f32 (n) -> y f32 (n) in place: y = keep * y + share * sum; y stays if the step is skipped
  // x f32 or run (n), equal parts -> packed u8 (parts, bytes of one), error f32 (n), in place: the signs of
  // factor * x + error
  quantize_signs,
  // packed u8 (K, bytes of a part) -> packed u8 (bytes), error f32 (n), in place: the signs of the sum + error
  requantize_signs,
  dequantize_signs,  // packed u8 (parts, bytes of one) -> y f32 (n): the parts in order
  positive_bits,  // x f32 (n), whole bytes of bits -> bits u8 (n / 8): bit i % 8 of byte i / 8 is 1 where x[i] > 0
  // grad f32 or run (n), of this rank alone, v f32 (n) or its positive_bits u8 (n / 8) -> m f32 (n), in place
  local_momentum,
  frozen_adam,   // m, v f32 (n) -> master f32 (n), param? run (n); in place
  lamb_average,  // square sums f64 (ranks, pairs) -> average f32 (parameters), in place (runtime/ir/ops/frozen_lamb.h)
  momentum_scale,  // m f32 (n), factor f32 (1) -> scale f32 (1), in place
  // grad f32 or run (n), of this rank alone, v f32 (n) or its positive_bits u8 (n / 8), m f32 (n), scale f32 (1)
  // -> x f32 (n), which may be m
  scaled_momentum,
  // v, master f32 (n), scale, factor f32 (1) -> x, m, fresh f32 (n) in place, direction f32 (n), largest f32 in place
  frozen_lamb_direction,
  lamb_factor,  // largest f32 (slices, parameters), square sums f64 (slices, pairs) -> factor f32 (parameters), in place
  frozen_lamb,  // direction f32 (n), average, factor f32 (1) -> master f32 (n), param? run (n); in place
  local_step,     // grad f32 or run (n), of this rank alone, v f32 (n) -> m, sum f32 (n), in place
  local_weights,  // master, v, sum f32 (n) -> param run (n): the weights that local steps have led to
  end_local_steps,  // v f32 (n) -> master, m, sum f32 (n), param? run (n); in place
  error_squares,  // x f32 or run (n), y f32 or run (n) -> s f64 (2): sums of squares of x - y and of x
  // done by the executor or the communicator (no kernel)
  load_batch,      // -> the inputs of all micro-batches; local target count
  zero,            // -> x = 0
  reduce_counts,   // sums the target count over ranks; sets d_loss
  all_reduce,      // x (n): its sum over the data-parallel group, in rank order, in place
  reduce_scatter,  // x (n) -> y (n / ranks): this rank's slice of the same sum
  all_gather,      // x (n / ranks) -> y (n): all ranks' slices; x may be this rank's part of y
  all_to_all,  // x (n) -> y (n), equal slices: slice s of rank r's x becomes slice r of rank s's y
  send,        // x (n): to the other rank of its channel; writes nothing
  recv,        // -> x (n): from the other rank of its channel
  swap_in,     // x (n) on disk, any dtype -> y (n) of the same dtype, on the host
  swap_out,    // x (n) on the host, any dtype -> y (n) of the same dtype, on disk
  copy,        // x (n), any dtype -> y (n) of the same dtype, in another space
  finish_gradients,  // sums norms and losses over ranks; sets norm, clip, skip, loss scale
};

inline constexpr int kOpKinds = static_cast<int>(OpKind::finish_gradients) + 1;
std::string_view name_of(OpKind op);  // as printed: "linear_input_grad"

// The activation function that an op applies to each element. gelu: its tanh form; silu: of gated alone.
enum class Activation : uint8_t { none, relu, gelu, silu };

// Attributes are the constant arguments of an op. Each op reads the attributes of one type, which its rule
// names; an op without any, or one that keeps their defaults, may come with std::monostate.

// The attributes of embed and embed_position_grad.
struct EmbedAttrs {
  int64_t seq_len = 0;  // T: rows of a sample
  bool operator==(const EmbedAttrs&) const = default;
};
// The attributes of cross_entropy.
struct CrossEntropyAttrs {
  int64_t classes =
      0;  // columns of the logits that count; 0: all. The gradient of the others is 0.
  bool by_row = false;  // one loss for each row, instead of their sum
  float weight = 1;     // of the gradient, not of the loss
  bool operator==(const CrossEntropyAttrs&) const = default;
};
// The attributes of layer_norm and rms_norm.
struct LayerNormAttrs {
  float eps = 1e-5f;
  bool operator==(const LayerNormAttrs&) const = default;
};
// The attributes of activation, gated, their gradients, linear and linear_input_grad.
struct ActivationAttrs {
  Activation activation = Activation::none;  // gelu in a product only by the pass `fuse`
  bool operator==(const ActivationAttrs&) const = default;
};
// The attributes of scale.
struct ScaleAttrs {
  float factor = 1;
  bool operator==(const ScaleAttrs&) const = default;
};
// The attributes of attention and attention_grad.
struct AttentionAttrs {
  float dropout = 0;  // probability
  uint32_t site = 0;  // dropout site, unique in the model (philox.h)
  int64_t heads = 0;  // of queries (H)
  int64_t seq_len = 0;
  int64_t kv_heads = 0;  // of keys and values (G), a divisor of `heads`; 0: as many as `heads`
  int64_t window = 0;    // query i sees keys i - window + 1 to i; 0: all keys to i
  double scale = 0;      // of the scores, above 0; 0: 1 / sqrt(head size)
  bool operator==(const AttentionAttrs&) const = default;
};
// The attributes of add_dropout and dropout_grad.
struct DropoutAttrs {
  float dropout = 0;
  uint32_t site = 0;
  int64_t seq_len = 0;
  bool operator==(const DropoutAttrs&) const = default;
};
// The attributes of add_layer_norm.
struct AddLayerNormAttrs {
  DropoutAttrs add{};
  LayerNormAttrs norm{};
  bool operator==(const AddLayerNormAttrs&) const = default;
};
// The attributes of pack_weight.
struct PackAttrs {
  int64_t rows = 0;             // R of the product that reads the packed weight
  bool for_input_grad = false;  // packed for linear_input_grad, else for linear
  bool operator==(const PackAttrs&) const = default;
};
// The attributes of unpack_weight.
struct UnpackAttrs {
  BlockFormat format = BlockFormat::nf4;  // int8 or nf4
  bool operator==(const UnpackAttrs&) const = default;
};
// The attributes of round_wire.
struct WireAttrs {
  DType wire = DType::f32;
  bool operator==(const WireAttrs&) const = default;
};
// The attributes of adam.
struct AdamAttrs {
  float eps = 1e-8f;
  float weight_decay = 0;
  bool decoupled_decay = true;  // AdamW (true) or L2 (false)
  bool beside_muon = false;     // the learning rate is the step state's adam_lr
  float lr_scale = 1;           // of the learning rate
  bool operator==(const AdamAttrs&) const = default;
};
// The attributes of adagrad.
struct AdagradAttrs {
  float eps = 1e-10f;
  float weight_decay = 0;
  float lr_scale = 1;  // of the learning rate
  bool operator==(const AdagradAttrs&) const = default;
};
// The attributes of lion.
struct LionAttrs {
  float weight_decay = 0;
  float lr_scale = 1;  // of the learning rate
  bool operator==(const LionAttrs&) const = default;
};
// The attributes of lamb_direction.
struct LambDirectionAttrs {
  float eps = 1e-8f;
  float weight_decay = 0;
  bool eps_inside_sqrt = false;
  bool operator==(const LambDirectionAttrs&) const = default;
};
// The attributes of lamb. Its square sums are, for each rank in order, a pair (weight, direction) for each of
// `parameters` parameters.
struct LambAttrs {
  float min_coeff = 0.01f, max_coeff = 10;  // limits of the trust ratio
  int64_t parameter = 0, parameters = 1;    // which of the pairs is the parameter's
  float lr_scale = 1;                       // of the learning rate
  bool operator==(const LambAttrs&) const = default;
};
// The attributes of sgd.
struct SgdAttrs {
  float weight_decay = 0;
  float momentum = 0, dampening = 0;
  bool nesterov = false;
  float lr_scale = 1;  // of the learning rate
  bool operator==(const SgdAttrs&) const = default;
};
// The attributes of muon_momentum.
struct MuonMomentumAttrs {
  double momentum = 0.95;
  bool operator==(const MuonMomentumAttrs&) const = default;
};
// The attributes of orthogonalize (runtime/ir/newton_schulz.h).
struct OrthogonalizeAttrs {
  bool gram = true;  // on the Gram matrix where that takes fewer FLOPs
  bool operator==(const OrthogonalizeAttrs&) const = default;
};
// The attributes of muon.
struct MuonAttrs {
  float weight_decay = 0;
  float scale = 1;     // of the direction
  float lr_scale = 1;  // of the learning rate
  bool operator==(const MuonAttrs&) const = default;
};
// The attributes of the ops of int4 values. A part is packed by itself.
struct Int4Attrs {
  int64_t part = 0;  // elements of a part
  int64_t group =
      1;  // quantize_int4: part p of P becomes packed part (p % group) * (P / group) + p / group
  int64_t first =
      0;  // sum_int4: the first of the M parts that is wanted; y has as many as it has room for
  // Error feedback (runtime/ir/ops/boundary.h) keeps this share of an error, and begins at 0 again after so many
  // updates.
  float error_beta = 0;
  int64_t error_steps = 0;
  bool operator==(const Int4Attrs&) const = default;
};
// The attributes of gram_schmidt.
struct GramSchmidtAttrs {
  double eps = 0;  // added to the length of a row before the division by it
  // A row that depends on those before it, or is 0, becomes a unit vector; else it becomes 0.
  bool revive = false;
  bool operator==(const GramSchmidtAttrs&) const = default;
};
// The attributes of random_factor: what its values depend on beside the number of updates (runtime/core/philox.h).
struct RandomFactorAttrs {
  uint64_t seed = 0, stream = 0;
  bool operator==(const RandomFactorAttrs&) const = default;
};
// The attributes of expand_factors.
struct ExpandAttrs {
  int64_t ranks = 1;  // that a product is the sum of
  bool operator==(const ExpandAttrs&) const = default;
};
// The attributes of commit_state.
struct CommitAttrs {
  bool unscale = false;  // divide by the loss scale
  int64_t divisor = 1;   // else divide by this
  bool operator==(const CommitAttrs&) const = default;
};
// The attributes of update_buffer.
struct UpdateBufferAttrs {
  float keep = 1, share = 1;
  bool operator==(const UpdateBufferAttrs&) const = default;
};
// The attributes of quantize_signs.
struct SignAttrs {
  bool gradient = false;  // x is a gradient, which is multiplied by the step's grad_scale
  int64_t ranks = 1;      // by which x is divided
  bool operator==(const SignAttrs&) const = default;
};
// The attributes of local_momentum, scaled_momentum and local_step.
struct LocalMomentumAttrs {
  int64_t ranks = 1;       // whose gradients add up to that of the step
  bool scaled = true;      // the gradient is to be multiplied by the step's grad_scale
  bool of_scaled = false;  // scaled_momentum: m has its scale already, as what came back from ranks
  bool operator==(const LocalMomentumAttrs&) const = default;
};
// The attributes of frozen_adam, local_weights and end_local_steps.
struct FrozenAdamAttrs {
  float eps = 1e-8f;
  float weight_decay = 0;
  bool operator==(const FrozenAdamAttrs&) const = default;
};
// The attributes of lamb_average.
struct LambAverageAttrs {
  float min_coeff = 0.01f, max_coeff = 10;  // limits of the trust ratio
  float beta = 0.9f;                        // the share of the average that stays
  bool operator==(const LambAverageAttrs&) const = default;
};
// The attributes of frozen_lamb_direction.
struct FrozenLambAttrs {
  float eps = 1e-8f;
  float weight_decay = 0;
  bool operator==(const FrozenLambAttrs&) const = default;
};
// The attributes of lamb_factor: the limits of a factor, and by which share of itself it may change.
struct LambFactorAttrs {
  float smallest = 0.5f, largest = 4, threshold = 0.1f;
  bool operator==(const LambFactorAttrs&) const = default;
};
using OpAttrs =
    std::variant<std::monostate, EmbedAttrs, CrossEntropyAttrs, LayerNormAttrs, ActivationAttrs,
                 ScaleAttrs, AttentionAttrs, DropoutAttrs, AddLayerNormAttrs, PackAttrs, WireAttrs,
                 AdamAttrs, AdagradAttrs, LionAttrs, LambDirectionAttrs, LambAttrs, SgdAttrs,
                 MuonMomentumAttrs, OrthogonalizeAttrs, MuonAttrs, Int4Attrs, GramSchmidtAttrs,
                 RandomFactorAttrs, ExpandAttrs, CommitAttrs, SignAttrs, LocalMomentumAttrs,
                 FrozenAdamAttrs, LambAverageAttrs, FrozenLambAttrs, LambFactorAttrs,
                 UpdateBufferAttrs, RotaryAttrs, UnpackAttrs>;

// Returns `attrs` as an op reads them: defaults where there are none. Throws std::bad_variant_access
// where they are another op's.
template <class Attrs>
Attrs attrs_as(const OpAttrs& attrs) {
  return std::holds_alternative<std::monostate>(attrs) ? Attrs{} : std::get<Attrs>(attrs);
}

}  // namespace dstrain
