// The names of seeded faults, and what each needs of a job.
#include <fmt/core.h>

#include <array>

#include "runtime/config/family/divisibility.h"
#include "runtime/core/error.h"
#include "runtime/engine/verify/seeded_fault.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
namespace {

bool keeps_residual(const Job& job) {
  if (job.state_ranks() == 1) return false;
  const HookKind hook = job.hook.kind;
  const bool factors = hook == HookKind::power_sgd || hook == HookKind::batched_power_sgd;
  return job.quantize.feedback || (factors && job.hook.error_feedback) || freezes(job.optimizer);
}

// Returns how many ranks have parts of the same samples and layers.
int layer_ranks(const Job& job) {
  return job.sequence_ranks * job.tensor_ranks;
}

bool keeps_state(const Job& job) {
  return !state_slots(job.optimizer).empty();
}

bool has_tensor_ranks(const Job& job) {
  return job.tensor_ranks > 1;
}
constexpr std::string_view kNoTensorRanks = "it has no two tensor ranks";

constexpr std::array<FaultName, 17> kFaults{{
    {Fault::dropped_gather, "dropped_gather", "a gather of parameters brings nothing",
     [](const Job& job) { return job.state_ranks() > 1 && job.zero_stage > 0; },
     "it gathers no parameters: ZeRO stage 1 to 3 on two data-parallel ranks does"},
    {Fault::doubled_gradient, "doubled_gradient", "a weight's gradient is added twice"},
    {Fault::mask_offset, "mask_offset", "a dropout mask is that of the next sample"},
    {Fault::stale_weight, "stale_weight", "a layer's weights stay those of the step before"},
    {Fault::unclipped_unit, "unclipped_unit", "a layer's gradient is not clipped",
     [](const Job& job) { return job.gradient_clipping > 0; }, "gradient_clipping is 0"},
    {Fault::missed_micro_batch, "missed_micro_batch",
     "a micro-batch's gradient of a weight is not added",
     [](const Job& job) { return job.batch.accumulation > 1; }, "a step has one micro-batch"},
    {Fault::wrong_beta, "wrong_beta", "the optimizer averages with another beta or momentum",
     [](const Job& job) {
       return keeps_state(job) && optimizer_rule(job.optimizer.kind).kept_share != nullptr;
     },
     "its optimizer has neither betas nor a momentum"},
    {Fault::repeated_data, "repeated_data", "a rank reads the samples of the rank before it",
     [](const Job& job) { return job.data_ranks() > 1; }, "it has one data-parallel rank"},
    {Fault::flipped_bit, "flipped_bit", "a bit of the optimizer's state flips", keeps_state,
     "its optimizer keeps no state"},
    {Fault::extra_rounding, "extra_rounding", "a layer's state is rounded to bf16 once"},
    {Fault::wrong_message, "wrong_message",
     "a stage receives the activations of another micro-batch",
     [](const Job& job) { return job.pipeline.stages > 1 && job.batch.accumulation > 1; },
     "it has no pipeline of two stages with two micro-batches"},
    {Fault::lost_residual, "lost_residual", "what a codec has lost is forgotten", keeps_residual,
     "no codec of it keeps what it loses: zeropp_loco_param, powerSGD and the 1-bit optimizers do, "
     "on two data-parallel ranks"},
    {Fault::missed_replicated_sum, "missed_replicated_sum",
     "a gradient of parameters that tensor ranks have alike is not added over them",
     has_tensor_ranks, kNoTensorRanks},
    {Fault::wrong_heads, "wrong_heads",
     "a rank's attention writes each head's result where another head's belongs",
     [](const Job& job) {
       return layer_ranks(job) > 1 && divided_sizes(job.model, 0).heads > layer_ranks(job);
     },
     "it has no two tensor or sequence ranks with two heads each"},
    {Fault::norm_counted_twice, "norm_counted_twice",
     "parameters that tensor ranks have alike count for each of them in the norm", has_tensor_ranks,
     kNoTensorRanks},
    {Fault::late_shift, "late_shift",
     "the last target of a rank's rows is its first one, as where targets are shifted after the "
     "sequence is cut",
     [](const Job& job) { return job.sequence_ranks > 1; }, "it has no two sequence ranks"},
    {Fault::mask_without_offset, "mask_without_offset",
     "a dropout mask begins at row or head 0 instead of the rank's first one",
     [](const Job& job) { return layer_ranks(job) > 1; }, "it has no two tensor or sequence ranks"},
}};

}  // namespace

std::span<const FaultName> seeded_faults() {
  return kFaults;
}

Fault fault_of(const std::string& name) {
  std::string names;
  for (const FaultName& known : kFaults) {
    if (known.name == name) return known.fault;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  fail_user("--seed_fault: there is no fault '{}': expected one of {}", name, names);
}

std::string_view name_of(Fault fault) {
  return kFaults[static_cast<size_t>(fault)].name;
}

void check_fault(Fault fault, const Job& job) {
  const FaultName& known = kFaults[static_cast<size_t>(fault)];
  if (known.applies && !known.applies(job))
    fail_user("--seed_fault {}: the configuration has nothing that it could change: {}", known.name,
              known.lack);
}

Job with_fault(Fault fault, const Job& job) {
  Job faulty = job;
  if (fault != Fault::wrong_beta) return faulty;
  double& beta = faulty.optimizer.*optimizer_rule(job.optimizer.kind).kept_share;
  beta = 1 - 2 * (1 - beta);
  if (beta <= 0) beta = 0.5;
  return faulty;
}

}  // namespace dstrain
