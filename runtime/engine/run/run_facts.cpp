#include "runtime/engine/run/run_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/core/checksum.h"

namespace dstrain {
namespace {

// Collects facts; numbers are written in their shortest form that reads back as the same.
class FactList {
 public:
  template <class Value>
  void add(FactChange change, std::string name, const Value& value) {
    facts_.push_back({std::move(name), fmt::format("{}", value), change});
  }
  RunFacts take() { return std::move(facts_); }

 private:
  RunFacts facts_;
};

uint64_t checksum_of_text(const std::string& text) {
  return checksum_of(text.data(), static_cast<int64_t>(text.size()));
}

void add_model(FactList& list, const ModelConfig& m) {
  const auto model = [&list](std::string_view key, const auto& value) {
    list.add(FactChange::dangerous, fmt::format("dstrain.model.{}", key), value);
  };
  model("n_layer", m.n_layer);
  if (m.kind == ModelKind::benchmark) {
    model("type", "benchmark");
    model("in_size", m.in_size);
    model("hidden_size", m.hidden_size);
    model("out_size", m.out_size);
    return;
  }
  model("type", "gptlite");
  model("n_embd", m.n_embd);
  model("n_head", m.n_head);
  model("block_size", m.block_size);
  model("activation", m.gelu ? "gelu" : "relu");
  model("qkv_bias", m.qkv_bias);
  model("tied_head", m.tied_head);
  model("vocab_size", m.vocab_size);
  list.add(FactChange::meant, "dstrain.model.dropout", m.dropout);
}

std::string vocabulary_text(const Vocabulary& vocabulary) {
  switch (vocabulary.format) {
    case DataFormat::characters:
      return fmt::format("{} characters, checksum {:016x}", vocabulary.size,
                         checksum_of_text(vocabulary_json(vocabulary)));
    case DataFormat::bytes:
      return "bytes";
    case DataFormat::tokens:
      return "token ids";
    case DataFormat::automatic:
      break;
  }
  return "none";
}

void add_data(FactList& list, const Job& job, const Dataset& dataset) {
  list.add(FactChange::dangerous, "vocabulary", vocabulary_text(dataset.vocabulary()));
  list.add(FactChange::dangerous, "dstrain.seed", job.seed);
  if (job.model.kind == ModelKind::benchmark) return;  // its samples are made from the seed
  list.add(FactChange::dangerous, "dstrain.data.order",
           job.data.random_order ? "random" : "sequential");
  list.add(FactChange::meant, "data",
           fmt::format("{} training samples, checksum {:016x}", dataset.samples(Split::train),
                       dataset.fingerprint()));
  list.add(FactChange::meant, "dstrain.data.val_fraction", job.data.val_fraction);
}

void add_optimizer(FactList& list, const Job& job) {
  const OptimizerConfig& o = job.optimizer;
  const auto params = [&list](std::string_view key, const auto& value) {
    list.add(FactChange::meant, fmt::format("optimizer.params.{}", key), value);
  };
  const bool adam = o.kind == OptimizerKind::adam;
  list.add(FactChange::dangerous, "optimizer.type",
           !adam               ? "SGD"
           : o.decoupled_decay ? "AdamW"
                               : "Adam");
  params("lr", o.lr);
  params("weight_decay", o.weight_decay);
  if (adam) {
    params("betas", fmt::format("[{}, {}]", o.beta1, o.beta2));
    params("eps", o.eps);
    params("bias_correction", o.bias_correction);
  } else {
    params("momentum", o.momentum);
    params("dampening", o.dampening);
    params("nesterov", o.nesterov);
  }
  list.add(FactChange::meant, "dstrain.weight_decay_exclude",
           fmt::format("[{}]", fmt::join(job.weight_decay_exclude, ", ")));
  list.add(FactChange::meant, "gradient_clipping", job.gradient_clipping);
}

// The schedule with everything that any kind reads: what a kind does not read stays at its default.
void add_schedule(FactList& list, const ScheduleConfig& s) {
  constexpr std::string_view kinds[] = {"constant", "LRRangeTest",   "OneCycle",
                                        "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  const auto kind = kinds[static_cast<size_t>(s.kind)];
  const auto warmup = [&s] {
    return fmt::format("{} to {} in {} {} steps", s.warmup_min_lr, s.warmup_max_lr,
                       s.warmup_num_steps, s.warmup_linear ? "linear" : "logarithmic");
  };
  std::string text(kind);
  switch (s.kind) {
    case ScheduleKind::constant:
      break;
    case ScheduleKind::lr_range_test:
      text += fmt::format(": from {}, rate {} each {} steps{}", s.range_min_lr, s.range_step_rate,
                          s.range_step_size, s.range_staircase ? ", staircase" : "");
      break;
    case ScheduleKind::one_cycle:
      text += fmt::format(": {} to {} in {} steps and back in {} (stairs {}, {}), decay {} each {}",
                          s.cycle_min_lr, s.cycle_max_lr, s.cycle_first_step_size,
                          s.cycle_second_step_size, s.cycle_first_stair_count,
                          s.cycle_second_stair_count, s.decay_lr_rate, s.decay_step_size);
      if (s.cycle_momentum)
        text += fmt::format(", momentum {} to {}, decay {}", s.cycle_min_mom, s.cycle_max_mom,
                            s.decay_mom_rate);
      break;
    case ScheduleKind::warmup:
      text += ": " + warmup();
      break;
    case ScheduleKind::warmup_decay:
      text += fmt::format(": {}, of {}", warmup(), s.total_num_steps);
      break;
    case ScheduleKind::warmup_cosine:
      text +=
          fmt::format(": ratio {} to 1 in {} {} steps, then to {} at step {}", s.warmup_min_ratio,
                      s.warmup_num_steps, s.warmup_linear ? "linear" : "logarithmic",
                      s.cos_min_ratio, s.total_num_steps);
      break;
  }
  list.add(FactChange::meant, "scheduler", text);
}

void add_precision(FactList& list, const Job& job) {
  list.add(FactChange::dangerous, "dtype", name_of(job.dtype));
  list.add(FactChange::meant, "communication_data_type", name_of(job.wire_dtype));
  list.add(FactChange::meant, "grad_accum_dtype", name_of(job.grad_dtype));
  const LossScaleConfig& s = job.loss_scale;
  if (job.dtype == DType::f16)
    list.add(FactChange::meant, "fp16",
             s.dynamic ? fmt::format("dynamic loss scale from {}, window {}, hysteresis {}{}, at "
                                     "least {}",
                                     s.initial, s.window, s.hysteresis,
                                     s.consecutive_hysteresis ? " in a row" : "", s.minimum)
                       : fmt::format("loss scale {}", s.initial));
  list.add(FactChange::free, "skip_on_overflow", job.skip_on_overflow);
  list.add(FactChange::free, "dstrain.max_skipped_steps", job.max_skipped_steps);
}

// What all ranks of one run must agree on although no number, or only its last bits, depends on it.
void add_layout(FactList& list, const Job& job) {
  const auto free = [&list](std::string_view name, const auto& value) {
    list.add(FactChange::free, std::string(name), value);
  };
  free("ranks", job.ranks);
  free("device", job.device);
  free("train_micro_batch_size_per_gpu", job.batch.micro_batch);
  free("gradient_accumulation_steps", job.batch.accumulation);
  free("zero_optimization.stage", job.zero_stage);
  free("zero_optimization.reduce_bucket_size", job.reduce_bucket_elements);
  free("zero_optimization.overlap_comm", job.overlap_comm);
  const GatherLimits& g = job.gather;
  free("zero_optimization.stage3",
       fmt::format("prefetch {}, persistence {} and {}, live {}, reuse {}", g.prefetch_elements,
                   g.param_persistence, g.model_persistence, g.max_live_elements,
                   g.max_reuse_distance));
  free("dstrain.reduce", job.reduce == ReduceMode::boundary ? "boundary" : "micro_batch");
  free("dstrain.recompute",
       fmt::format("{} {}", static_cast<int>(job.recompute.mode), job.recompute.interval));
  free("dstrain.cuda_graph", static_cast<int>(job.graph));
  free("dstrain.eval_interval", job.eval_interval);
  free("dstrain.eval_samples", job.eval_samples);
  free("dstrain.save_interval", job.save_interval);
}

}  // namespace

RunFacts run_facts(const Job& job, const Dataset& dataset) {
  FactList list;
  add_model(list, job.model);
  add_data(list, job, dataset);
  list.add(FactChange::meant, "train_batch_size", job.batch.train_batch);
  list.add(FactChange::meant, "dstrain.steps", job.steps);
  add_optimizer(list, job);
  add_schedule(list, job.schedule);
  add_precision(list, job);
  add_layout(list, job);
  return list.take();
}

uint64_t fingerprint_of(const RunFact& fact) {
  return checksum_of_text(fmt::format("{}={}", fact.name, fact.value));
}

uint64_t fingerprint_of(const RunFacts& facts) {
  std::vector<uint64_t> parts;
  parts.reserve(facts.size());
  for (const RunFact& fact : facts) parts.push_back(fingerprint_of(fact));
  return checksum_of(parts.data(), static_cast<int64_t>(parts.size() * sizeof(uint64_t)));
}

}  // namespace dstrain
