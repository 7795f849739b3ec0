#include "runtime/config/solve/solve_training.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "runtime/config/axes_text.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/optimizer_types.h"
#include "runtime/config/solve/communication/solve_hook.h"
#include "runtime/config/solve/solve_precision.h"
#include "runtime/config/solve/solve_schedule.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr std::string_view kMicsShardSize = "zero_optimization.mics_shard_size",
                           kHpzPartitionSize = "zero_optimization.zero_hpz_partition_size";

constexpr double kTorchWeightDecay = 0.01;  // torch.optim.AdamW's default

// `o` has the plain lr and what the other optimizers have.
void solve_muon(OptimizerConfig& o, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view lr = "optimizer.params.lr", of_matrices = "optimizer.params.muon_lr",
                             of_others = "optimizer.params.adam_lr";
  if (v.given(lr) && v.given(of_matrices) && v.given(of_others))
    diagnostics.no_effect(lr, "muon_lr and adam_lr overrule it");
  const bool has_lr = v.given(lr) || v.is_auto(lr);
  o.adam_lr = has_lr ? v.real(of_others, o.lr, lr) : v.real(of_others);
  o.lr = v.real(of_matrices, o.lr, lr);
  o.gram = v.text("optimizer.params.ns_method") == "gram";
}

void solve_optimizer(Job& job, Values& v, Diagnostics& diagnostics, const Facts& facts) {
  OptimizerConfig& o = job.optimizer;
  if (const Member* section = find(*facts.root, "optimizer");
      section && section->value.is(Node::Kind::object) && !section->value.member("type"))
    diagnostics.error("optimizer.type",
                      fmt::format("missing: use {}, or remove the section", optimizer_names()));
  const std::string type = v.text("optimizer.type", "AdamW", "no optimizer section");
  const OptimizerType* const known = optimizer_type(type);
  if (!known) return;  // which its verdict reports
  o.kind = known->kind;
  const auto key = [](std::string_view name) { return fmt::format("optimizer.params.{}", name); };
  const auto has = [&](std::string_view name) { return find_key(facts, key(name)) != nullptr; };
  const auto real = [&](std::string_view name, double& value) {
    if (has(name)) value = v.real(key(name));
  };
  const auto flag = [&](std::string_view name, bool& value) {
    if (has(name)) value = v.flag(key(name));
  };
  real("lr", o.lr);
  real("lr_decay", o.lr_decay);
  o.decoupled_decay = false;
  flag("adam_w_mode", o.decoupled_decay);
  if (lower_case(type) == "adamw" || o.kind == OptimizerKind::adam_8bit) o.decoupled_decay = true;
  const bool of_torch = o.kind != OptimizerKind::muon && has("torch_adam") &&
                        v.flag(key("torch_adam")) && o.decoupled_decay;
  if (of_torch && !v.is_auto(key("weight_decay")))
    o.weight_decay =
        v.real(key("weight_decay"), kTorchWeightDecay, "the default of torch.optim.AdamW");
  else
    real("weight_decay", o.weight_decay);
  if (has("betas")) {
    const auto betas = v.betas(key("betas"));
    o.beta1 = betas[0];
    o.beta2 = betas[1];
  }
  real("eps", o.eps);
  flag("bias_correction", o.bias_correction);
  real("momentum", o.momentum);
  real("dampening", o.dampening);
  flag("nesterov", o.nesterov);
  real("max_coeff", o.max_coeff);
  real("min_coeff", o.min_coeff);
  flag("eps_inside_sqrt", o.eps_inside_sqrt);
  real("coeff_beta", o.one_bit_lamb.coeff_beta);
  real("factor_max", o.one_bit_lamb.factor_max);
  real("factor_min", o.one_bit_lamb.factor_min);
  real("factor_threshold", o.one_bit_lamb.factor_threshold);
  const auto count = [&](std::string_view name, int64_t& value) {
    if (has(name)) value = v.integer(key(name));
  };
  count("freeze_step", o.freeze_step);
  count("min_8bit_size", o.min_8bit_size);
  count("var_freeze_step", o.zero_one.var_freeze_step);
  count("var_update_scaler", o.zero_one.var_update_scaler);
  count("local_step_scaler", o.zero_one.local_step_scaler);
  count("local_step_clipper", o.zero_one.local_step_clipper);
  if (has("muon_lr")) solve_muon(o, v, diagnostics);
  if (o.min_coeff > o.max_coeff)
    diagnostics.error(
        "optimizer.params.min_coeff",
        fmt::format("{} is above max_coeff {}", json_text(o.min_coeff), json_text(o.max_coeff)),
        {key("max_coeff")});
  if (o.one_bit_lamb.factor_min > o.one_bit_lamb.factor_max)
    diagnostics.error("optimizer.params.factor_min",
                      fmt::format("{} is above factor_max {}", json_text(o.one_bit_lamb.factor_min),
                                  json_text(o.one_bit_lamb.factor_max)),
                      {key("factor_max")});
  if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
    diagnostics.error("optimizer.params.nesterov", "needs a momentum above 0 and a dampening of 0",
                      {key("momentum"), key("dampening")});
}

void solve_shards(Job& job, Values& v, Diagnostics& diagnostics, const std::string& sharding) {
  if (sharding == "FULL_SHARD") return;
  const int64_t mics = v.integer(kMicsShardSize), hpz = v.integer(kHpzPartitionSize);
  if (mics > 0 && hpz > 1 && mics != hpz)
    diagnostics.error(kHpzPartitionSize,
                      fmt::format("{}, and mics_shard_size is {}: both say among how many ranks "
                                  "parameters are divided, keep one",
                                  hpz, mics));
  job.shards.ranks = static_cast<int>(mics > 0 ? mics : hpz > 1 ? hpz : 0);
  job.shards.by_host = job.shards.ranks == 0 && sharding == "HYBRID_SHARD";
}

void solve_zero(Job& job, Values& v, Diagnostics& diagnostics) {
  job.zero_stage = static_cast<int>(v.integer("zero_optimization.stage"));
  std::string sharding;
  if (v.given("dstrain.sharding")) sharding = v.text("dstrain.sharding", "", "");
  // For "auto", Hugging Face computes the value from the model's width.
  const int64_t width = job.model.width();
  const auto elements = [&](std::string_view key, int64_t derived, std::string_view why) {
    return v.is_auto(key) ? v.integer(key, derived, why) : v.integer(key);
  };
  job.reduce_bucket_elements =
      elements("zero_optimization.reduce_bucket_size", width * width, "hidden size squared");
  job.overlap_comm = v.flag("zero_optimization.overlap_comm", true, "every stage");
  if (job.zero_stage < 3) return;
  solve_shards(job, v, diagnostics, sharding);
  job.quantize.weights = v.flag("zero_optimization.zero_quantized_weights");
  job.quantize.gradients = v.flag("zero_optimization.zero_quantized_gradients");
  if (v.given("zero_optimization.zeropp_loco_param")) {
    job.quantize.feedback = job.quantize.gradients;
    job.quantize.error_beta =
        static_cast<float>(v.real("zero_optimization.zeropp_loco_param.err_beta"));
    job.quantize.error_steps = v.integer("zero_optimization.zeropp_loco_param.reset_T");
  }
  // Without shards the ranks of a host are groups for gradients alone.
  if (job.quantize.gradients && job.shards == ShardConfig{}) job.shards = {0, true, false};
  GatherLimits& g = job.gather;
  g.prefetch_elements = elements("zero_optimization.stage3_prefetch_bucket_size",
                                 width * width * 9 / 10, "0.9 x hidden size squared");
  g.param_persistence = elements("zero_optimization.stage3_param_persistence_threshold", 10 * width,
                                 "10 x hidden size");
  g.model_persistence = v.integer("zero_optimization.stage3_model_persistence_threshold");
  g.max_live_elements = v.integer("zero_optimization.stage3_max_live_parameters");
  g.max_reuse_distance = v.integer("zero_optimization.stage3_max_reuse_distance");
}

// Reports what quantized gradients leave without an effect, or contradict.
void judge_wire(const Job& job, Values& v, Diagnostics& diagnostics) {
  if (!job.quantize.gradients) return;
  constexpr std::string_view wire = "communication_data_type", hook = "dstrain.comm_hook.type";
  if (v.given(wire))
    diagnostics.no_effect(wire, "zero_quantized_gradients: gradients travel as int4");
  if (v.given(hook) && v.text(hook) != "noop")
    diagnostics.error(hook,
                      "zero_quantized_gradients says how gradients travel: keep one of the two");
}

// Reports whether the bucket size has an effect. Gradients that ranks add once per step, in the type in which
// they are held, are added in place without a buffer, so that there is nothing to limit.
void judge_bucket(const Job& job, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view key = "zero_optimization.reduce_bucket_size";
  if (!v.given(key) && !v.is_auto(key)) return;
  if (!job.overlap_comm)
    diagnostics.no_effect(key, "overlap_comm is false: one layer is under way at a time");
  else if (job.quantize.gradients && job.reduce == ReduceMode::boundary &&
           job.grad_dtype == job.wire_dtype)
    diagnostics.no_effect(key, "packed gradients travel once a step, two layers at a time");
  else if (job.reduce == ReduceMode::boundary && job.grad_dtype == job.wire_dtype)
    diagnostics.no_effect(
        key, fmt::format("gradients are {} and travel as {}, once a step: they are "
                         "added in place, and there is no bucket",
                         deepspeed_name(job.grad_dtype), deepspeed_name(job.wire_dtype)));
}

// Returns the key that says among how many ranks the job's shards are.
std::string_view shards_key(const Job& job, const Values& values) {
  if (job.shards.by_host) return "dstrain.sharding";
  const Member* member = values.given(kMicsShardSize);
  return member != nullptr && to_integer(member->value) == job.shards.ranks ? kMicsShardSize
                                                                            : kHpzPartitionSize;
}

}  // namespace

void solve_training(Job& job, Values& values, Diagnostics& diagnostics, const Facts& facts) {
  job.gradient_clipping = std::max(0.0, values.real("gradient_clipping"));
  job.steps_per_print = values.integer("steps_per_print");
  job.loss = {.label_smoothing = values.real("dstrain.label_smoothing"),
              .z_loss = values.real("dstrain.z_loss")};
  job.experts = {.bias_update = values.real("dstrain.experts.bias_update"),
                 .z_loss = values.real("dstrain.experts.z_loss")};
  solve_zero(job, values, diagnostics);
  const bool at_boundary = usual_reduce(job.zero_stage) == ReduceMode::boundary;
  const std::string reduce = values.text("dstrain.reduce", at_boundary ? "boundary" : "micro_batch",
                                         fmt::format("stage {}", job.zero_stage));
  job.reduce = reduce == "boundary" ? ReduceMode::boundary : ReduceMode::micro_batch;
  solve_precision(job, values, diagnostics, facts);
  judge_wire(job, values, diagnostics);
  solve_hook(job, values, diagnostics);
  judge_bucket(job, values, diagnostics);
  solve_optimizer(job, values, diagnostics, facts);
  job.optimizer.ema_decay = values.real("dstrain.ema.decay");
  solve_schedule(job, values, diagnostics, facts);
}

void judge_lone_rank(const Job& job, Diagnostics& diagnostics) {
  const std::string gradients = "one data-parallel rank: there are no gradients to send";
  if (job.quantize.weights)
    diagnostics.no_effect("zero_optimization.zero_quantized_weights",
                          "one data-parallel rank: there are no parameters to send");
  if (job.quantize.gradients)
    diagnostics.no_effect("zero_optimization.zero_quantized_gradients", gradients);
  if (job.quantize.feedback)
    diagnostics.no_effect("zero_optimization.zeropp_loco_param", gradients);
  if (job.hook.kind != HookKind::none) diagnostics.no_effect("dstrain.comm_hook.type", gradients);
}

void check_shards(const Job& job, const Values& values, Diagnostics& diagnostics,
                  int64_t data_ranks, const std::string& ranks_origin) {
  const int ranks = job.shards.ranks;
  if (ranks == 0 || data_ranks % ranks == 0) return;
  const std::string_view key = shards_key(job, values);
  diagnostics.error(
      key, fmt::format(
               "{}{} does not divide the {} ({}): expected a divisor",
               key == kMicsShardSize ? "removed from DeepSpeed (0.19.8); here " : "", ranks,
               counted(data_ranks, has_model_axes(axis_ranks(job)) ? "data-parallel rank" : "rank"),
               ranks_origin));
}

}  // namespace dstrain
