#include "runtime/plan/settings/choices.h"

#include <fmt/core.h>

#include "runtime/config/family/family.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/settings/fit.h"

namespace dstrain {
namespace {

constexpr int kMostHalvings = 4;
constexpr int64_t kPieces = 8;
constexpr double kManyBytes = int64_t{256} << 20;  // from which pieces are worth a plan

Choices stages(const Job& job) {
  Choices choices;
  for (int stage = job.zero_stage + 1; stage <= highest_stage(job) && job.state_ranks() > 1;
       ++stage)
    choices.push_back({fmt::format("--set zero_optimization.stage={}", stage), [stage](Job& j) {
                         if (j.reduce == usual_reduce(j.zero_stage)) j.reduce = usual_reduce(stage);
                         j.zero_stage = stage;
                       }});
  if (const Place place = place_of(job, 0); place.replicas_hold() && place.replicas() > 1)
    choices.push_back({"--set dstrain.sharding=FULL_SHARD", [](Job& j) { j.shards = {}; }});
  return choices;
}

Choices recomputes(const Job& job) {
  Choices choices;
  const RecomputeConfig every_layer{RecomputeMode::interval, 1};
  if (job.recompute.mode == RecomputeMode::none)
    choices.push_back({"--set dstrain.recompute=selective", [](Job& j) {
                         j.recompute = {RecomputeMode::selective, 0};
                       }});
  if (job.recompute != every_layer)
    choices.push_back({"--set dstrain.recompute=1", [=](Job& j) { j.recompute = every_layer; }});
  return choices;
}

Choices gathers(const Job& job) {
  if (!can_gather_again(job)) return {};
  return {{"--set dstrain.gather_again=true", [](Job& j) { j.gather_again = GatherAgain::on; }}};
}

Choices micro_batches(const Job& job) {
  Choices choices;
  if (job.model.family().batch > 0) return choices;
  BatchConfig batch = job.batch;
  for (int i = 0; i < kMostHalvings && batch.micro_batch % 2 == 0; ++i) {
    batch.micro_batch /= 2;
    batch.accumulation *= 2;
    Job changed = job;
    changed.batch = batch;
    if (!divides_among_ranks(changed)) break;
    choices.push_back({fmt::format("--set train_micro_batch_size_per_gpu={} --set "
                                   "gradient_accumulation_steps={}",
                                   batch.micro_batch, batch.accumulation),
                       [batch](Job& j) { j.batch = batch; }});
  }
  return choices;
}

Choices pieces(const Job& job) {
  const ModelMeasures model = job.model.measures();
  const auto many = [&](double elements) {
    return elements *
               static_cast<double>(job.rows_of(job.batch.micro_batch) * size_of(job.dtype)) >=
           kManyBytes;
  };
  const Change loss{fmt::format("--set dstrain.loss_chunks={}", kPieces),
                    [](Job& j) { j.loss_chunks = kPieces; }};
  const Change mlp{fmt::format("--set dstrain.mlp_chunks={}", kPieces),
                   [](Job& j) { j.mlp_chunks = kPieces; }};
  Choices choices;
  const bool divides_loss = model.divides_loss && job.objective.has_plain_loss();
  if (job.loss_chunks < kPieces && divides_loss && many(model.logits)) choices.push_back(loss);
  if (job.mlp_chunks < kPieces && many(model.activations)) choices.push_back(mlp);
  if (choices.size() == 2)
    choices.push_back({loss.settings + " " + mlp.settings,
                       [](Job& j) { j.loss_chunks = j.mlp_chunks = kPieces; }});
  return choices;
}

Choices offloads(const Job& job) {
  Choices choices;
  if (highest_stage(job) == 0 || freezes(job.optimizer)) return choices;
  if (limits_device(job) && job.offload.optimizer == OffloadTo::none)
    choices.push_back({"--set zero_optimization.offload_optimizer.device=cpu",
                       [](Job& j) { j.offload.optimizer = OffloadTo::cpu; }});
  if (limits_device(job) && job.offload.optimizer != OffloadTo::none && job.offload.ratio < 1)
    choices.push_back(
        {"--set zero_optimization.offload_optimizer.ratio=1", [](Job& j) { j.offload.ratio = 1; }});
  if (limits_device(job) && job.offload.parameters == OffloadTo::none && highest_stage(job) == 3)
    choices.push_back(
        {"--set zero_optimization.stage=3 --set "
         "zero_optimization.offload_optimizer.device=cpu --set "
         "zero_optimization.offload_param.device=cpu --set "
         "zero_optimization.stage3_max_reuse_distance=0",
         [](Job& j) {
           if (j.reduce == usual_reduce(j.zero_stage)) j.reduce = usual_reduce(3);
           j.zero_stage = 3;
           j.offload.optimizer = OffloadTo::cpu;
           j.offload.parameters = OffloadTo::cpu;
           j.gather.max_reuse_distance = 0;
         }});
  if (limits_device(job) && job.zero_stage == 3 && job.gather.max_reuse_distance > 0)
    choices.push_back({"--set zero_optimization.stage3_max_reuse_distance=0",
                       [](Job& j) { j.gather.max_reuse_distance = 0; }});
  return choices;
}

}  // namespace

std::vector<Choices> choices_of(const Job& job) {
  return {stages(job),        recomputes(job), gathers(job),
          micro_batches(job), pieces(job),     offloads(job)};
}

std::vector<Rounding> roundings_of(const Job& job) {
  std::vector<Rounding> list;
  if (!is_16bit(job.dtype) || job.hook.kind != HookKind::none) return list;
  const bool bf16 = job.dtype == DType::bf16;
  const std::string_view section = bf16 ? "bf16" : "fp16";
  if (!is_16bit(job.grad_dtype))
    list.push_back({{fmt::format("--set data_types.grad_accum_dtype={}", section),
                     [](Job& j) { j.grad_dtype = j.dtype; }},
                    "sums of micro-batches round"});
  if (!can_own_masters(job.optimizer)) return list;
  const std::string masters = fmt::format("--set {0}.{0}_master_weights_and_grads=true", section);
  const auto hold_masters = [](Job& j) { j.grad_dtype = j.master_dtype = j.dtype; };
  const std::string_view lost = bf16 ? "steps of less than 1/512 of a weight are lost"
                                     : "steps of less than 1/4096 of a weight are lost";
  if (!is_16bit(job.master_dtype)) list.push_back({{masters, hold_masters}, lost});
  if (bf16 && !is_16bit(job.state_dtype))
    list.push_back({{masters + " --set bf16.bf16_optimizer_states=true",
                     [hold_masters](Job& j) {
                       hold_masters(j);
                       j.state_dtype = j.dtype;
                     }},
                    "steps of less than 1/512 of a weight are lost, and moments round"});
  return list;
}

}  // namespace dstrain
