// Random legal jobs at small sizes: any ZeRO stage, pipeline, offload, codec, optimizer and type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>

#include "runtime/config/pipeline_schedule.h"
#include "tests/support/models.h"

namespace dstrain {

class RandomJobs {
 public:
  explicit RandomJobs(uint64_t seed) : random_(seed) {}

  // A job on one to four ranks.
  Job next() {
    job_ = {};
    job_.save_last = false;
    job_.steps_per_print = 0;
    choose_model();
    choose_ranks();
    choose_types();
    choose_optimizer();
    choose_codec();
    choose_stage();
    if (between(0, 1) == 1) choose_memory();
    return job_;
  }

  // Returns which share of the labels does not count for the newest job, so that some certainly do.
  double ignored_labels() {
    return job_.batch.train_batch * job_.model.context() >= 20 && coin() ? 0.2 : 0;
  }

 private:
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[between(0, static_cast<int64_t>(list.size()) - 1)];
  }
  int64_t limit() { return one_of<int64_t>({0, 100, 3000, 50'000, 1'000'000'000}); }
  bool alone() const { return job_.data_ranks() == 1; }
  bool plain_sums() const {  // no codec changes what is sent
    return !is_one_bit(job_.optimizer.kind) && job_.hook.kind == HookKind::none &&
           !job_.sparse_gradients;
  }

  void choose_model() {
    if (between(0, 3) == 0) {
      BenchmarkModel m;
      m.n_layer = between(1, 9);  // down to fewer parameters than ranks
      m.in_size = between(1, 17);
      m.hidden_size = between(1, 33);
      m.out_size = between(2, 9);
      job_.model = m;
      return;
    }
    GptLite m;
    m.n_layer = between(1, 5);
    m.n_head = between(1, 3);
    m.n_embd = m.n_head * between(1, 11);
    m.block_size = between(1, 9);
    m.vocab_size = between(2, 40);
    m.dropout = coin() ? 0.1 : 0;
    m.gelu = coin();
    m.qkv_bias = coin();
    m.tied_head = coin();
    job_.model = m;
  }

  void choose_ranks() {
    job_.ranks = static_cast<int>(between(1, 4));
    BatchConfig& batch = job_.batch;
    batch.micro_batch = between(1, 3);
    batch.accumulation = between(1, 4);
    if (job_.ranks % 2 == 0 && job_.model.layers() >= 4 && between(0, 2) == 0) {
      PipelineConfig& pipeline = job_.pipeline;
      pipeline.stages = 2;
      pipeline.schedule =
          one_of({PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                  PipelineSchedule::interleaved, PipelineSchedule::zb_h1, PipelineSchedule::zb_v});
      const bool two_parts = pipeline.schedule == PipelineSchedule::interleaved ||
                             pipeline.schedule == PipelineSchedule::zb_v;
      pipeline.virtual_stages = two_parts ? 2 : 1;
      if (pipeline.schedule == PipelineSchedule::interleaved) batch.accumulation = one_of({2, 4});
    }
    batch.train_batch = batch.micro_batch * batch.accumulation * job_.data_ranks();
  }

  void choose_types() {
    job_.dtype = one_of({DType::f32, DType::f32, DType::bf16, DType::f16});
    job_.wire_dtype = coin() ? job_.dtype : one_of({DType::f32, DType::bf16, DType::f16});
    job_.grad_dtype = coin() ? job_.dtype : DType::f32;
    if (job_.dtype == DType::f16) {
      job_.skip_on_overflow = true;
      job_.loss_scale = {.dynamic = coin(), .initial = 64, .window = 2, .hysteresis = 1};
    } else {
      job_.skip_on_overflow = job_.wire_dtype == DType::f16 || coin();
    }
    job_.gradient_clipping = one_of({0.0, 0.05, 1.0});
    job_.reduce = coin() ? ReduceMode::boundary : ReduceMode::micro_batch;
    job_.seed = static_cast<uint64_t>(between(0, 1000));
  }

  void choose_optimizer() {
    OptimizerConfig& o = job_.optimizer;
    o.lr = 0.01;
    o.weight_decay = coin() ? 0.1 : 0;
    o.kind = one_of({OptimizerKind::adam, OptimizerKind::adam, OptimizerKind::sgd,
                     OptimizerKind::adagrad, OptimizerKind::lion, OptimizerKind::lamb,
                     OptimizerKind::muon});
    if (o.kind == OptimizerKind::sgd) {
      o.momentum = coin() ? 0.9 : 0;
      o.decoupled_decay = false;
    }
    if (o.kind == OptimizerKind::muon) {
      o.momentum = 0.95;
      o.gram = coin();
    }
    if (coin()) job_.weight_decay_exclude = {"*.bias", "*ln*"};
  }

  void choose_codec() {
    if (job_.pipeline.stages > 1 || alone() || between(0, 2) > 0) return;
    switch (between(0, 3)) {
      case 0:
        job_.hook = {.kind = one_of({HookKind::power_sgd, HookKind::batched_power_sgd}),
                     .start = 1,
                     .rank = between(1, 2),
                     .warm_start = coin(),
                     .seed = 3};
        break;
      case 1:
        job_.optimizer.kind = one_of({OptimizerKind::one_bit_adam, OptimizerKind::one_bit_lamb});
        job_.optimizer.bias_correction = false;
        job_.optimizer.freeze_step = 2;
        break;
      case 2:
        job_.zero_stage = 3;
        job_.quantize = {.weights = coin(), .gradients = true, .feedback = coin()};
        break;
      default:
        job_.sparse_gradients = job_.model.family().reads_tokens();
        break;
    }
    if (!plain_sums()) {
      job_.reduce = ReduceMode::boundary;
      job_.grad_dtype = DType::f32;
    }
  }

  void choose_stage() {
    const bool first_two = job_.hook.kind != HookKind::none || is_one_bit(job_.optimizer.kind);
    if (job_.zero_stage == 0)
      job_.zero_stage = static_cast<int>(between(0, job_.sparse_gradients ? 0 : first_two ? 1 : 3));
    job_.overlap_comm = coin();
    job_.reduce_bucket_elements = limit();
    job_.gather = {.prefetch_elements = limit(),
                   .param_persistence = limit(),
                   .model_persistence = limit(),
                   .max_live_elements = limit(),
                   .max_reuse_distance = limit()};
    if (job_.zero_stage == 3 && job_.data_ranks() == 4) job_.shards.ranks = one_of({0, 2});
    job_.recompute.mode =
        one_of({RecomputeMode::none, RecomputeMode::interval, RecomputeMode::selective});
    if (job_.recompute.mode == RecomputeMode::interval) job_.recompute.interval = between(1, 3);
  }

  void choose_memory() {
    if (!plain_sums()) return;
    OffloadConfig& offload = job_.offload;
    offload.nvme_paths = {"/tmp"};
    offload.optimizer = one_of({OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme});
    if (offload.optimizer == OffloadTo::cpu)
      offload.optimizer_on = one_of({UpdateOn::host, UpdateOn::device});
    offload.activations = one_of({OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme});
    if (job_.zero_stage == 3 && coin())
      offload.parameters = one_of({OffloadTo::cpu, OffloadTo::nvme});
    offload.ratio = one_of({1.0, 0.5});
    offload.max_in_cpu = limit();
    offload.read_ahead = coin() ? 0 : 16 * limit();
  }

  std::mt19937_64 random_;
  Job job_;
};

}  // namespace dstrain
