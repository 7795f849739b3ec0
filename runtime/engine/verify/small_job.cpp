#include "runtime/engine/verify/small_job.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/config/family/family.h"
#include "runtime/config/pipeline_schedule.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/config/sparse_gradients.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/engine/verify/small_model.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
namespace {

constexpr int64_t kSteps = 4, kMicroBatch = 2, kAccumulation = 3, kStageAccumulation = 4;
constexpr int kMostRanks = 8;
constexpr double kLossScale = 256;      // small models have small gradients: no step overflows
constexpr double kClip = 0.1;           // their norm is larger
constexpr double kLearningRate = 5e-3;  // a step moves 16-bit weights

int small_degree(int degree) {
  return std::min(degree, 2);
}

// Every axis has two ranks at most, and there is one data-parallel rank where the others are eight.
void shrink_ranks(Job& job) {
  const int data = job.data_ranks();
  ShardConfig& shards = job.shards;
  PipelineConfig& pipeline = job.pipeline;
  int ranks = small_degree(data);
  if (shards.by_host) {
    shards.by_host = false;
    ranks = std::min(data, 4);
    if (ranks % 2 != 0) ranks = small_degree(data);
    shards.ranks = ranks == 4 ? 2 : job.hook.kind == HookKind::post_local_sgd ? 1 : 0;
  } else if (shards.ranks > 0) {
    const int replicas = small_degree(data / shards.ranks);
    shards.ranks = small_degree(shards.ranks);
    ranks = shards.ranks * replicas;
  }
  pipeline.stages = small_degree(pipeline.stages);
  job.sequence_ranks = small_degree(job.sequence_ranks);
  job.tensor_ranks = small_degree(job.tensor_ranks);
  const int others = pipeline.stages * job.sequence_ranks * job.tensor_ranks;
  if (job.sequence_ranks * job.tensor_ranks > 1) ranks = std::min(ranks, kMostRanks / others);
  job.ranks = ranks * others;
  job.expert_ranks = small_degree(job.expert_ranks);
}

void shrink_batch(Job& job) {
  BatchConfig& batch = job.batch;
  const int stages = job.pipeline.stages;
  batch.micro_batch = std::min(batch.micro_batch, kMicroBatch);
  batch.accumulation =
      std::min(batch.accumulation, stages > 1 ? kStageAccumulation : kAccumulation);
  if (batch.accumulation > stages) batch.accumulation -= batch.accumulation % stages;
  batch.train_batch = batch.micro_batch * batch.accumulation * job.data_ranks();
}

// Returns how many numbered layers the job's features need.
int64_t layers_of(Job& job) {
  PipelineConfig& pipeline = job.pipeline;
  job.recompute.interval = std::min<int64_t>(job.recompute.interval, 2);
  int64_t layers = 1 + 2 * std::max<int64_t>(job.recompute.interval, 1);
  if (pipeline.stages > 1) {
    pipeline.virtual_stages = std::min(pipeline.virtual_stages, 2);
    layers = std::max<int64_t>(layers, 1 + pipeline.stages * chunks_of(pipeline));
  }
  return layers;
}

// A list of the parts' first layers becomes an even one.
void shrink_list(Job& job) {
  PipelineConfig& pipeline = job.pipeline;
  if (pipeline.first_layers.empty()) return;
  const int64_t parts = pipeline.stages * chunks_of(pipeline), layers = job.model.measures().layers;
  pipeline.first_layers.clear();
  for (int64_t i = 0; i < parts; ++i) pipeline.first_layers.push_back(i * layers / parts);
}

// A gradient travels as rows in the small job if it does in the job.
void keep_token_rows(Job& small, bool rows) {
  for (const int64_t vocabulary : {211, 1009, 4001, 16001}) {
    if (!small.sparse_gradients || sends_token_rows(small) == rows) return;
    small.model.set_vocabulary(vocabulary);
  }
}

void shrink_limits(Job& job, const Shrinking& sizes) {
  GatherLimits& g = job.gather;
  job.reduce_bucket_elements = sizes.units(job.reduce_bucket_elements);
  g.prefetch_elements = sizes.units(g.prefetch_elements);
  g.param_persistence = sizes.parameters(g.param_persistence);
  g.model_persistence = sizes.share(g.model_persistence);
  g.max_live_elements = sizes.share(g.max_live_elements);
  g.max_reuse_distance = sizes.share(g.max_reuse_distance);
  job.offload.max_in_cpu = sizes.share(job.offload.max_in_cpu);
  job.offload.read_ahead = sizes.share(job.offload.read_ahead);
  job.hook.rank = std::min<int64_t>(job.hook.rank, 2);
  job.optimizer.min_8bit_size = sizes.parameters(job.optimizer.min_8bit_size - 1) + 1;
  job.device_memory = 0;
}

// Numbers of steps until something changes become so small that it does. Returns how many steps that takes.
int64_t shrink_step_counts(Job& job) {
  OptimizerConfig& o = job.optimizer;
  HookConfig& hook = job.hook;
  int64_t steps = kSteps;
  if (const SignRule* signs = optimizer_rule(o.kind).signs) steps = signs->shorten(o);
  if (hook.kind != HookKind::none) {
    hook.start = 1;  // the first step adds gradients as they are
    hook.period = std::min<int64_t>(hook.period, 2);
    steps = 5;
  }
  if (job.quantize.feedback)
    job.quantize.error_steps = std::min<int64_t>(job.quantize.error_steps, 3);
  ScheduleConfig& s = job.schedule;
  s.total_num_steps = std::min(s.total_num_steps, 2 * steps);
  for (int64_t* const count : {&s.warmup_num_steps, &s.range_step_size, &s.cycle_first_step_size,
                               &s.cycle_second_step_size, &s.cycle_first_stair_count,
                               &s.cycle_second_stair_count, &s.decay_step_size})
    *count = std::min<int64_t>(*count, 2);
  return steps;
}

// So few steps are to move the weights: a lower learning rate rises, and the shape of its schedule stays.
void raise_rates(Job& job) {
  const ScheduleRule& rule = schedule_rule(job.schedule.kind);
  const double largest = rule.largest ? rule.largest(job.schedule) : job.optimizer.lr;
  // A second moment that is frozen after two steps makes large steps.
  const double wanted = freezes(job.optimizer) ? kLearningRate / 10 : kLearningRate;
  if (largest <= 0 || largest >= wanted) return;
  const double factor = wanted / largest;
  ScheduleConfig& s = job.schedule;
  for (double* rate : {&job.optimizer.lr, &job.optimizer.adam_lr, &s.warmup_min_lr,
                       &s.warmup_max_lr, &s.range_min_lr, &s.cycle_min_lr, &s.cycle_max_lr})
    *rate *= factor;
  if (s.warmup_max_adam_lr) *s.warmup_max_adam_lr *= factor;
}

// Leaves out what a run reads, writes and waits for.
void leave_out_files(Job& job) {
  job.output = job.trace = job.init_weights = job.resume = job.optimizer_state = "";
  job.comms_logger = {};
  job.tensorboard = job.csv_monitor = {};
  job.flops_profiler = {};
  job.wall_clock_breakdown = job.memory_breakdown = false;
  job.eval_interval = job.save_interval = job.steps_per_print = 0;
  job.save_last = job.overwrite = job.resume_with_changes = false;
}

}  // namespace

SmallJob small_job(const Job& job) {
  SmallJob result{job, 0};
  Job& small = result.job;
  leave_out_files(small);
  shrink_ranks(small);
  shrink_batch(small);
  const int64_t layers = layers_of(small);
  small.model = small_model(job.model, layers,
                            {small.sequence_ranks, small.tensor_ranks, small.expert_ranks});
  if (!divides_among_ranks(small))
    fail_user(
        "verify: the small model has {} and samples of {}, which do not divide among {} sequence "
        "and {} tensor ranks: expected dstrain.data.seq_len to be a multiple of {}",
        counted(divided_sizes(small.model, 0).heads, "attention head"),
        counted(small.model.seq_len(), "token"), small.sequence_ranks, small.tensor_ranks,
        small.sequence_ranks * small.tensor_ranks);
  shrink_list(small);
  shrink_limits(small, {job.model, small.model});
  if (job.sparse_gradients) keep_token_rows(small, sends_token_rows(job));
  result.steps = shrink_step_counts(small);
  raise_rates(small);
  if (small.gradient_clipping > 0)
    small.gradient_clipping = std::min(small.gradient_clipping, kClip);
  LossScaleConfig& scale = small.loss_scale;
  if (scale.initial > 1) scale.initial = std::min(scale.initial, kLossScale);
  scale.minimum = std::min(scale.minimum, scale.initial);
  scale.window = std::min<int64_t>(scale.window, 2);
  if (const auto wrong = small.pipeline.stages > 1
                             ? schedule_error(small.pipeline.schedule, small.pipeline.stages,
                                              small.pipeline.virtual_stages,
                                              static_cast<int>(small.batch.accumulation))
                             : std::nullopt)
    fail_user("verify: the small job has {}", *wrong);
  small.steps = result.steps;
  return result;
}

std::string sizes_text(const Job& job, const Job& small) {
  const auto sizes = [](const Job& j) {
    return fmt::format("{} of {} channels, {}, {} x {} a rank", counted(j.model.layers(), "layer"),
                       j.model.width(), counted(j.ranks, "rank"), j.batch.accumulation,
                       counted(j.batch.micro_batch, "sample"));
  };
  return fmt::format("{} (for {})", sizes(small), sizes(job));
}

}  // namespace dstrain
