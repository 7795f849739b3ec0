#include "runtime/engine/verify/references.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "runtime/config/family/family.h"
#include "runtime/config/family/measures.h"
#include "runtime/config/pipeline_schedule.h"
#include "runtime/config/text.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/build_model.h"

namespace dstrain {
namespace {

bool quantizes(const Job& job) {
  return job.quantize.weights || job.quantize.gradients;
}

// Returns whether parts of a pipeline share a parameter.
bool shares_table(const Job& job) {
  if (job.pipeline.stages == 1) return false;
  const std::optional<TokenTable> table = job.model.measures().token_table;
  return table && table->shared;
}

// The largest relative error of a value that is rounded to a type.
double rounding(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24;
}

// Returns the operations and parameters of a model, for their kinds alone.
Program forward_of(const ModelConfig& model) {
  Program program;
  Builder builder(program,
                  {.batch = model.family().any_batch(), .training = false, .checked = false});
  build_model(builder, model.with_any_vocabulary());
  return program;
}

// Returns by how much products of two fresh matrices enlarge a value of size 1, at least 1: attention's logits are such,
// and an error of theirs is that share of a probability.
double gain_of(const ModelConfig& model) {
  double largest = 1;
  for (const Parameter& p : forward_of(model).parameters) {
    if (p.shape.rank != 2) continue;
    const double inputs = static_cast<double>(p.shape[1]);
    const double deviation = p.init == Init::uniform ? p.init_scale / std::sqrt(3.0) : p.init_scale;
    largest = std::max(largest, deviation * deviation * inputs);
  }
  return largest;
}

// Returns whether the slope of an activation, or of another formula of the model, jumps.
bool has_kink(const ModelConfig& model) {
  const Program program = forward_of(model);
  return std::ranges::any_of(program.instructions, [](const Instruction& op) {
    if (const auto* const map = std::get_if<MapAttrs>(&op.attrs)) return map->formula.has_kink();
    const auto* const attrs = std::get_if<ActivationAttrs>(&op.attrs);
    return attrs != nullptr && attrs->activation == Activation::relu;
  });
}

// Returns the largest error that dividing layers and samples adds to a gradient, as a share of its terms. In each layer two
// sums over ranks forward and two backward are rounded in another way, which large weights enlarge (gain_of()). In 16 bits
// this moves some values over the kink of a ReLU, and a token's term comes or goes.
double error_of_divided_layers(const Job& job, double gain) {
  constexpr double kRoundings = 16, kIn16Bits = 0.04, kOfKinks = 0.3;
  if (is_16bit(job.dtype))
    return has_kink(job.model) ? kOfKinks : std::min(kIn16Bits * gain, kOfKinks);
  return gain * kRoundings * static_cast<double>(job.model.measures().layers) * rounding(job.dtype);
}

// Returns after how many steps a job begins to send signs, factors, or nothing to some ranks.
int64_t exact_steps(const Job& job) {
  if (job.state_ranks() > 1 && job.hook.kind != HookKind::none) return job.hook.start;
  const SignRule* signs = optimizer_rule(job.optimizer.kind).signs;
  if (!signs) return INT64_MAX;
  return (signs->exact_steps ? signs->exact_steps : signs->freeze_step)(job.optimizer);
}

}  // namespace

Job plain_job(const Job& job) {
  Job plain = job;
  plain.pipeline = {};
  if (shares_table(job)) {
    plain.pipeline.stages = job.pipeline.stages;
    plain.pipeline.schedule = job.pipeline.schedule == PipelineSchedule::zb_v
                                  ? PipelineSchedule::zb_v
                                  : PipelineSchedule::gpipe;
    plain.pipeline.virtual_stages = chunks_of(plain.pipeline);
  }
  plain.ranks = job.state_ranks() * job.tensor_ranks * plain.pipeline.stages;
  plain.expert_ranks = 1;
  plain.gather_again = GatherAgain::off;
  plain.overlap_comm = false;  // overlap_tensor stays: a library may add in another order in halves
  plain.recompute = {};
  plain.loss_chunks = plain.mlp_chunks = 1;
  plain.offload = {};
  plain.gather = {};
  plain.reduce_bucket_elements = Job{}.reduce_bucket_elements;
  plain.zero_stage = quantizes(job) ? job.zero_stage : 0;
  // Groups of ranks tell what a codec approximates; otherwise they only say where values are held.
  if (!quantizes(job) && job.hook.kind != HookKind::post_local_sgd) plain.shards = {};
  return plain;
}

Job naive_job(const Job& job) {
  Job naive = plain_job(job);
  naive.pipeline = {};
  naive.ranks = naive.sequence_ranks = naive.tensor_ranks = 1;
  naive.batch.accumulation *= job.data_ranks();
  naive.zero_stage = 0;
  naive.shards = {};
  naive.quantize = {};
  naive.hook = {};
  naive.sparse_gradients = false;
  naive.reduce = ReduceMode::boundary;
  naive.wire_dtype = naive.grad_dtype = DType::f32;
  if (const SignRule* signs = optimizer_rule(job.optimizer.kind).signs)
    signs->never_freeze(naive.optimizer);
  return naive;
}

// A tensor's gradient is a sum of terms, one or more for each micro-batch, that all runs compute alike, and add in another
// order. Each addition and each rounding is off by at most a rounding of the terms' sum without signs.
Tolerance tolerance_of(const Job& job) {
  constexpr double kOrders = 4;  // two orders, and two roundings of each sum
  const auto micro_batches = static_cast<double>(job.batch.accumulation * job.data_ranks());
  Tolerance t;
  t.gradient = kOrders * micro_batches * 0x1p-24;
  t.reason = fmt::format("{} added in fp32",
                         counted(static_cast<int64_t>(micro_batches), "micro-batch", "es"));
  if (job.wire_dtype != DType::f32) {
    t.gradient += kOrders * rounding(job.wire_dtype);
    t.reason += fmt::format(", rounded to {} to be sent", name_of(job.wire_dtype));
  }
  if (is_16bit(job.grad_dtype)) {
    t.gradient += kOrders * micro_batches * rounding(job.grad_dtype);
    t.reason += fmt::format(", sums held in {}", name_of(job.grad_dtype));
  }
  if (job.wire_dtype == DType::f16 || job.grad_dtype == DType::f16)
    t.least =
        kOrders * micro_batches * 0x1p-25 / (job.dtype == DType::f16 ? job.loss_scale.initial : 1);
  t.first_loss = 1e-6;
  const bool divided = job.sequence_ranks * job.tensor_ranks > 1;
  const double gain = divided ? gain_of(job.model) : 1;
  if (divided) {
    t.gradient += error_of_divided_layers(job, gain);
    t.first_loss = gain * std::max(t.first_loss, kOrders * rounding(job.dtype));
    t.reason += fmt::format(", divided layers in {}", name_of(job.dtype));
    if (gain > 1) t.reason += fmt::format(", large weights enlarge {:.2g} times", gain);
  }
  if (job.quantize.gradients) {
    // A block has one scale. Each hop loses up to a 14th of a block's largest value for each of its terms.
    t.gradient += 0.5;
    t.of_unit = true;
    t.reason += ", packed as int4";
  }
  if (job.quantize.weights) {  // up to a 254th of a block's largest weight, in every layer
    t.gradient += 0.3;
    t.first_loss = 2e-2;
    t.reason += ", of weights packed as int8";
  }
  // Later losses are of weights that an optimizer has moved by gradients which differ so much.
  const bool rounded =
      is_16bit(job.dtype) || is_16bit(job.wire_dtype) || is_16bit(job.grad_dtype) || gain > 1;
  t.loss = quantizes(job) ? 0.1 : rounded ? 3e-2 : 1e-3;
  t.norm = quantizes(job) ? 0.5 : rounded ? 0.1 : 1e-2;
  // Rounded gradients lead the weights of small models apart within few steps.
  t.later_norms = !rounded && !quantizes(job);
  t.steps = exact_steps(job);
  return t;
}

}  // namespace dstrain
