// Every op that a plan may contain, its operands and its attributes. The rules (runtime/ir/ops: shapes,
// cost, backward pass) and the kernels (kernels/*) both rely on the order of operands given in runtime/ir/op_list.def.
//
// Letters: B samples of a micro-batch, T tokens of a sample, R = B*T rows, C channels, H heads,
// K and N input and output features, V vocabulary, E experts, S slots (the experts that a row chooses), G = R*S rows of
// all experts. The values of a forward or backward op have one dtype (f32, bf16 or
// f16); "run" is the run's dtype, which parameters have. An operand marked ? may be absent. d_x is the gradient
// of x. Running sums, statistics and weight gradients are f32. documents i32 (R): where a sample holds several documents,
// of each row the row of its sample at which its document begins (InputRole::documents). Positions count from there, and
// queries see keys of their own document alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <variant>

#include "runtime/core/blocks/weight_blocks.h"
#include "runtime/core/dtype.h"
#include "runtime/ir/rotary.h"
#include "runtime/ir/rows_part.h"
#include "runtime/ir/views/general_attrs.h"

namespace dstrain {

// The ops that a plan may contain: runtime/ir/op_list.def lists them.
enum class OpKind : uint8_t {
#define OP(op, family) op,
#include "runtime/ir/op_list.def"
};

// Who makes the kernel of an op: a kernel library has a part for each family.
enum class OpFamily : uint8_t {
  none,
  memory_bound,
  product,
  contraction,
  convolution,
  grouped,
  attention,
  decode,
  newton_schulz
};

inline constexpr OpFamily kOpFamilies[] = {
#define OP(op, family) OpFamily::family,
#include "runtime/ir/op_list.def"
};
inline constexpr int kOpKinds = static_cast<int>(std::size(kOpFamilies));
constexpr OpFamily family_of(OpKind op) {
  return kOpFamilies[static_cast<size_t>(op)];
}
std::string_view name_of(OpKind op);  // as printed: "linear_input_grad"

// The activation function that an op applies to each element. gelu: its tanh form; gelu_erf: the exact one, x times the
// normal distribution's probability of less than x; silu: of gated alone.
enum class Activation : uint8_t { none, relu, gelu, gelu_erf, silu };

// Attributes are the constant arguments of an op. Each op reads the attributes of one type, which its rule
// names; an op without any, or one that keeps their defaults, may come with std::monostate.

// The attributes of embed, embed_token_grad, add_rows and embed_position_grad.
struct EmbedAttrs {
  int64_t seq_len = 0;  // T: rows of a sample
  RowsPart part{};
  // Not 0: the table has so many of the vocabulary's tokens, from `first_token` on. The others are rows of zeros, and
  // have no gradient here.
  int64_t tokens = 0, first_token = 0;
  bool operator==(const EmbedAttrs&) const = default;
};
// The attributes of cross_entropy, class_sums and cross_entropy_part.
struct CrossEntropyAttrs {
  int64_t classes =
      0;  // columns of the logits that count; 0: all. The gradient of the others is 0.
  int64_t first_class = 0;  // the class of column 0: class_sums and cross_entropy_part
  bool by_row = false;      // one loss for each row, instead of their sum
  float weight = 1;         // of the gradient, not of the loss
  // The share of a row's target that all classes have alike (Szegedy et al., 2016), as PyTorch's label_smoothing. Where the
  // classes are divided, `all_classes` is their number in all parts.
  float smoothing = 0;
  int64_t all_classes = 0;
  // What the square of the logarithm of a row's sum of exponentials is added with (Chowdhery et al., 2022).
  float z_loss = 0;
  bool operator==(const CrossEntropyAttrs&) const = default;
};
// The attributes of log_probs and log_probs_grad.
struct LogProbsAttrs {
  static constexpr int64_t kMostTargets = 1024;  // of a row
  int64_t classes =
      0;  // columns of the logits that count; 0: all. The gradient of the others is 0.
  bool in_place = false;  // the gradient takes the place of the logits, which nothing reads then
  bool operator==(const LogProbsAttrs&) const = default;
};
// The attributes of layer_norm.
struct LayerNormAttrs {
  float eps = 1e-5f;
  bool operator==(const LayerNormAttrs&) const = default;
};
// The attributes of batch_norm and batch_norm_grad.
struct BatchNormAttrs {
  float eps = 1e-5f;
  bool relu = false;  // behind the norm, and behind the sum with a residual
  bool operator==(const BatchNormAttrs&) const = default;
};
// The attributes of rms_norm, rms_norm_input_grad and rms_norm_weight_grad.
struct RmsNormAttrs {
  float eps = 1e-5f;
  // Weights are held minus 1: the sum of 1 and the weight is what multiplies, in f32, without a rounding before.
  bool centred = false;
  bool operator==(const RmsNormAttrs&) const = default;
};
// The attributes of activation, gated, their gradients, linear and linear_input_grad.
struct ActivationAttrs {
  Activation activation = Activation::none;  // gelu in a product only by the pass `fuse`
  bool operator==(const ActivationAttrs&) const = default;
};
// The attributes of softcap and softcap_grad.
struct SoftcapAttrs {
  float cap = 0;  // above 0
  bool operator==(const SoftcapAttrs&) const = default;
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
  bool causal = true;    // false: each query sees all keys of its sample
  double scale = 0;      // of the scores, above 0; 0: 1 / sqrt(head size)
  double softcap = 0;    // above 0: a scaled score s becomes softcap * tanh(s / softcap)
  int64_t first_head =
      0;  // the model's head of queries that head 0 is: masks of dropout follow from it
  bool operator==(const AttentionAttrs&) const = default;
};
// The attributes of add_dropout and dropout_grad.
struct DropoutAttrs {
  float dropout = 0;
  uint32_t site = 0;
  int64_t seq_len = 0;
  RowsPart part{};
  bool operator==(const DropoutAttrs&) const = default;
};
// The attributes of add_layer_norm.
struct AddLayerNormAttrs {
  DropoutAttrs add{};
  LayerNormAttrs norm{};
  bool operator==(const AddLayerNormAttrs&) const = default;
};
// The attributes of split_columns and join_columns: which columns of a row are in which part. A row consists of
// `sections` runs of equally many columns, each of `parts` / `copies` equal blocks; part p has block p / copies of each.
struct ColumnsAttrs {
  int64_t parts = 1;
  int64_t sections = 1;
  int64_t copies = 1;
  bool operator==(const ColumnsAttrs&) const = default;
};
// What experts score at a row, by which it chooses some and weighs them.
enum class RouterScores : uint8_t {
  softmax,  // their shares of all experts
  chosen,   // their shares of those that are chosen, by their logits
  sigmoid,  // each by itself
};
// The attributes of route and route_grad.
struct RouteAttrs {
  RouterScores scores = RouterScores::softmax;
  bool normalised = false;  // weights are divided by their sum and `epsilon`
  bool rounded = false;     // weights are rounded to the dtype of the logits
  float epsilon = 0;
  float scale = 1;  // of weights, at last
  // Experts are in so many groups, of which a row chooses `kept_groups`, by the sums of their two largest scores, and then
  // experts of these alone. A bias is added to scores where experts and groups are chosen, and not to weights.
  int64_t groups = 1, kept_groups = 1;
  bool operator==(const RouteAttrs&) const = default;
};
// The attributes of the grouped products: the rows are those of so many ranks, one after the other, each in the order of
// experts. So there are as many groups of rows for each expert, and its weight's gradient has as many terms.
struct GroupedAttrs {
  int64_t senders = 1;
  bool operator==(const GroupedAttrs&) const = default;
};
// The attributes of expert_ends: the ranks that divide the experts, and which of them this one is.
struct ExpertEndsAttrs {
  int64_t ranks = 1, rank = 0;
  bool operator==(const ExpertEndsAttrs&) const = default;
};
// The attributes of exchange_rows: from the ranks that have chosen experts to those that have these, or back.
struct ExchangeAttrs {
  bool back = false;
  bool operator==(const ExchangeAttrs&) const = default;
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
// `parameters` parameters. With an average and a factor in their place, only lr_scale counts.
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
// The attributes of orthogonalize (runtime/ir/ops/newton_schulz.h).
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
  bool begins_with_sum =
      false;  // in the first update of a run the sum takes the place of the values
  bool operator==(const UpdateBufferAttrs&) const = default;
};
// The attributes of quantize_signs.
struct SignAttrs {
  bool gradient = false;  // x is a gradient, which is multiplied by the step's grad_scale
  int64_t ranks = 1;      // by which x is divided
  bool operator==(const SignAttrs&) const = default;
};
// The attributes of local_momentum.
struct LocalMomentumAttrs {
  float share = 1, weight = 1;  // of the momentum and of the gradient, which are multiplied by them
  bool scaled = true;           // the gradient is to be multiplied by the step's grad_scale
  bool of_scaled = false;       // m has its scale already, as what came back from ranks
  bool operator==(const LocalMomentumAttrs&) const = default;
};
// The attributes of frozen_adam, frozen_lamb_direction, local_weights and end_local_steps.
struct FrozenStepAttrs {
  float eps = 1e-8f;
  float weight_decay = 0;
  bool operator==(const FrozenStepAttrs&) const = default;
};
// The attributes of lamb_average.
struct LambAverageAttrs {
  float min_coeff = 0.01f, max_coeff = 10;  // limits of the trust ratio
  float beta = 0.9f;                        // the share of the average that stays
  bool operator==(const LambAverageAttrs&) const = default;
};
// The attributes of sum_rows, where its rows come in pieces: the sums of their blocks (RowBlocks) are written one after
// the other, and then added.
struct SumRowsAttrs {
  int64_t block = 0;       // not 0: y has a row for each block of so many rows, its sum
  bool of_blocks = false;  // x has the sums of blocks
  bool operator==(const SumRowsAttrs&) const = default;
};
// The attributes of lamb_factor: the limits of a factor, and by which share of itself it may change.
struct LambFactorAttrs {
  float smallest = 0.5f, largest = 4, threshold = 0.1f;
  bool operator==(const LambFactorAttrs&) const = default;
};
using OpAttrs = std::variant<
    std::monostate, EmbedAttrs, CrossEntropyAttrs, LogProbsAttrs, LayerNormAttrs, RmsNormAttrs,
    BatchNormAttrs, ActivationAttrs, MapAttrs, ReduceAttrs, ContractAttrs, TakeAttrs, ScanAttrs,
    SortAttrs, UniformAttrs, WindowAttrs, ConvolutionAttrs, SumLossAttrs, SoftcapAttrs, ScaleAttrs,
    AttentionAttrs, DropoutAttrs, AddLayerNormAttrs, PackAttrs, WireAttrs, AdamAttrs, AdagradAttrs,
    LionAttrs, LambDirectionAttrs, LambAttrs, SgdAttrs, MuonMomentumAttrs, OrthogonalizeAttrs,
    MuonAttrs, Int4Attrs, GramSchmidtAttrs, RandomFactorAttrs, ExpandAttrs, CommitAttrs, SignAttrs,
    LocalMomentumAttrs, FrozenStepAttrs, LambAverageAttrs, LambFactorAttrs, UpdateBufferAttrs,
    RotaryAttrs, UnpackAttrs, ColumnsAttrs, SumRowsAttrs, RouteAttrs, GroupedAttrs, ExpertEndsAttrs,
    ExchangeAttrs>;

// Returns `attrs` as an op reads them: defaults where there are none. Throws std::bad_variant_access
// where they are another op's.
template <class Attrs>
Attrs attrs_as(const OpAttrs& attrs) {
  return std::holds_alternative<std::monostate>(attrs) ? Attrs{} : std::get<Attrs>(attrs);
}

// Returns which rows of a micro-batch the rows of the operands are, where the attributes have that.
std::optional<RowsPart> part_of(const OpAttrs& attrs);
// Sets which rows of a micro-batch the rows of the operands are, where the attributes have that (RowsPart).
void set_part(OpAttrs& attrs, const RowsPart& part);

}  // namespace dstrain
