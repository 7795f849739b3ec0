#include "runtime/config/solve/exclusions.h"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/keys/table/optimizer_types.h"

namespace dstrain {
namespace {

constexpr std::string_view kPipelineStages = "pipeline.stages", kHook = "dstrain.comm_hook.type",
                           kOptimizer = "optimizer.type",
                           kOffload = "zero_optimization.offload_optimizer.device",
                           kSequence = "sequence_parallel_size",
                           kTensor = "tensor_parallel.autotp_size";

// A pair of settings.
struct Exclusion {
  bool had = false;      // by the job
  std::string_view key;  // of one of the two
  std::string message;   // names the other one, and says what to do
};

// Something that changes what ranks send, for which there is no pipeline and no offload.
struct Sent {
  bool used = false;           // by the job
  std::string name;            // in messages
  std::string_view instead;    // what goes with what it excludes
  std::string_view on_device;  // what it does there
  std::string_view sends;      // why there is no hook beside it; empty: it is one
};

// Something that ranks of an axis do not run yet.
struct AxisLimit {
  bool used = false;  // by the job
  std::string_view key;
  bool sequence = false, tensor = false;  // the axes
  std::string_view what;                  // in messages, with its verb: "1-bit optimizers do"
  std::string_view instead;
};

bool offloads(Values& values) {
  return values.given(kOffload) && values.text(kOffload) != "none";
}

class Table {
 public:
  Table(const Job& job, Values& values) : job_(job), offloads_(offloads(values)) {}

  void add(bool had, std::string_view key, std::string message) {
    rows_.push_back({had, key, std::move(message)});
  }

  void add_sent(const Sent& sent) {
    add(sent.used && job_.pipeline.stages > 1, kPipelineStages,
        fmt::format("{} runs without a pipeline: use 1, or {}", sent.name, sent.instead));
    add(sent.used && offloads_, kOffload,
        fmt::format("{} {} on the device: remove offload_optimizer, or use {}", sent.name,
                    sent.on_device, sent.instead));
    add(sent.used && !sent.sends.empty() && job_.hook.kind != HookKind::none, kHook,
        fmt::format("it says how gradients travel, and {}: keep one of the two", sent.sends));
  }

  void add_limit(const AxisLimit& limit) {
    const bool sequence = limit.sequence && job_.sequence_ranks > 1;
    const bool tensor = limit.tensor && job_.tensor_ranks > 1;
    const std::string axes = sequence && tensor ? fmt::format("{} and {}", kSequence, kTensor)
                                                : std::string(sequence ? kSequence : kTensor);
    add(limit.used && (sequence || tensor), limit.key,
        fmt::format("{} not run with {} above 1 yet: {}", limit.what, axes, limit.instead));
  }

  const std::vector<Exclusion>& rows() const { return rows_; }

 private:
  const Job& job_;
  const bool offloads_;
  std::vector<Exclusion> rows_;
};

void add_hooks(Table& table, const Job& job) {
  const HookKind kind = job.hook.kind;
  const bool local = kind == HookKind::post_local_sgd, factors = kind == HookKind::power_sgd,
             batched = kind == HookKind::batched_power_sgd;
  table.add_sent({local, "post_localSGD", "noop", "averages weights", ""});
  table.add(local && is_16bit(job.master_dtype),
            job.dtype == DType::bf16 ? "bf16.bf16_master_weights_and_grads"
                                     : "fp16.fp16_master_weights_and_grads",
            "post_localSGD averages fp32 masters: use false, or noop");
  const std::string_view name = batched ? "batched_powerSGD" : "powerSGD";
  table.add((factors || batched) && job.reduce == ReduceMode::micro_batch, "dstrain.reduce",
            fmt::format("{} sends the gradient of a whole step: use \"boundary\"", name));
  table.add((factors || batched) && job.grad_dtype != DType::f32, "data_types.grad_accum_dtype",
            fmt::format("{} makes factors of fp32 gradients: use \"fp32\"", name));
}

void add_signs(Table& table, const Job& job) {
  const OptimizerType& type = optimizer_type_of(job.optimizer.kind);
  const bool signs = !type.stages.empty();
  table.add(signs && job.zero_stage > type.highest_stage, "zero_optimization.stage",
            fmt::format("{} runs {}", type.name, type.stages));
  const std::string sends = fmt::format("{} sends something else", type.name);
  table.add_sent({signs, std::string(type.name), "AdamW", "updates", sends});
}

void add_8bit_state(Table& table, const Job& job) {
  if (!is_8bit(job.optimizer.kind)) return;
  const std::string_view name = optimizer_type_of(job.optimizer.kind).name;
  table.add(job.hook.kind == HookKind::post_local_sgd, kHook,
            fmt::format("state in 8 bits, as {} has it, cannot be averaged over groups of ranks: "
                        "use noop, or AdamW",
                        name));
}

void add_weight_average(Table& table, const Job& job) {
  const bool used = job.optimizer.ema_decay > 0;
  constexpr std::string_view kAverage =
      "dstrain.ema averages the weights of all ranks, and with it each group of ranks has its own";
  table.add(used && is_16bit(job.master_dtype),
            job.dtype == DType::bf16 ? "bf16.bf16_master_weights_and_grads"
                                     : "fp16.fp16_master_weights_and_grads",
            "dstrain.ema averages fp32 masters: use false, or remove dstrain.ema");
  table.add(used && job.hook.kind == HookKind::post_local_sgd, kHook,
            fmt::format("{}: use noop, or remove dstrain.ema", kAverage));
  table.add(used && job.optimizer.kind == OptimizerKind::zero_one_adam, kOptimizer,
            fmt::format("{}: use AdamW, or remove dstrain.ema", kAverage));
}

// Returns whether DeepSpeed's runs have the optimizer with the same state.
bool is_of_deepspeed(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adam:
    case OptimizerKind::sgd:
    case OptimizerKind::adagrad:
    case OptimizerKind::lion:
    case OptimizerKind::lamb:
      return true;
    default:
      return false;
  }
}

void add_imported_state(Table& table, const Job& job) {
  if (job.optimizer_state.empty() || !job.resume.empty()) return;
  constexpr std::string_view kState = "dstrain.optimizer_state";
  table.add(
      job.init_weights.empty(), kState,
      "the state goes with the weights of its run, and these are fresh: name them with --model "
      "DIR or --init_weights, or remove the key");
  table.add(!is_of_deepspeed(job.optimizer.kind), kState,
            fmt::format("{} has a state that DeepSpeed's optimizers do not keep: use AdamW, Lion, "
                        "Adagrad, Lamb or SGD, or remove the key",
                        optimizer_type_of(job.optimizer.kind).name));
  table.add(job.optimizer.ema_decay > 0, kState,
            "dstrain.ema begins at the first update, which is done already: remove one of the two");
  table.add(job.model.fine_tuning().lora.has_value(), kState,
            "the state is of the model's parameters, of which dstrain.lora trains none: remove one "
            "of the two");
  table.add(job.model.stored_vocabulary() > 0, kState,
            "rows of the vocabulary are new, which the state does not have: remove the key, or add "
            "no tokens");
}

void add_axes(Table& table, const Job& job) {
  const std::optional<LoraConfig>& lora = job.model.fine_tuning().lora;
  for (const AxisLimit& limit : {
           AxisLimit{is_one_bit(job.optimizer.kind), kOptimizer, true, true, "1-bit optimizers do",
                     "use AdamW"},
           {is_8bit(job.optimizer.kind), kOptimizer, false, true,
            "optimizers with state in 8 bits do", "use AdamW"},
           {job.hook.kind != HookKind::none, kHook, true, true, "powerSGD and post_localSGD do",
            "use noop, fp16_compress or bf16_compress"},
           {lora && lora->base != BlockFormat::none, "dstrain.lora.base", false, true,
            "weights in packed blocks do", "remove it"},
           {lora && lora->dropout > 0, "dstrain.lora.dropout", false, true,
            "dropout of adapters does", "use 0"},
           {job.objective.compares_answers(), "dstrain.objective.type", true, true,
            job.objective.rates_answers() ? "rated answers do" : "pairs of answers do",
            "use ZeRO stages, pipeline.stages or offload"},
           {job.objective.has_teacher(), "dstrain.objective.type", true, true,
            "a loss with a teacher does", "use ZeRO stages, pipeline.stages or offload"},
       })
    table.add_limit(limit);
}

// What has not been made for experts that ranks divide.
void add_experts(Table& table, const Job& job) {
  if (job.expert_ranks == 1) return;
  constexpr std::string_view kWith = "with expert_parallel.autoep_size above 1";
  const OptimizerKind kind = job.optimizer.kind;
  table.add(kind == OptimizerKind::lamb || is_one_bit(kind) || is_8bit(kind), kOptimizer,
            fmt::format("{} does not run {} yet: use AdamW", optimizer_type_of(kind).name, kWith));
  table.add(job.hook.kind != HookKind::none, kHook,
            fmt::format("powerSGD and post_localSGD do not run {} yet: use noop", kWith));
  table.add(job.shards.ranks > 0 || job.shards.by_host, "zero_optimization.mics_shard_size",
            fmt::format("shards of some ranks do not run {} yet: all ranks are one", kWith));
  table.add(job.quantize.weights, "zero_optimization.zero_quantized_weights",
            fmt::format("parameters do not travel quantized {} yet: use false", kWith));
  table.add(job.quantize.gradients, "zero_optimization.zero_quantized_gradients",
            fmt::format("gradients do not travel quantized {} yet: use false", kWith));
  table.add(job.model.fine_tuning().lora.has_value(), "dstrain.lora",
            fmt::format("adapters do not run {} yet: remove one of the two", kWith));
  table.add(
      job.grad_dtype != DType::f32 && job.reduce == ReduceMode::boundary,
      "data_types.grad_accum_dtype",
      fmt::format("gradients of experts are added in fp32 {}: use \"fp32\", or dstrain.reduce "
                  "\"micro_batch\"",
                  kWith));
  table.add(job.device == DeviceChoice::cuda || job.device == DeviceChoice::emulated,
            "expert_parallel.autoep_size",
            "rows of experts travel between processors alone: use --device cpu, or 1");
}

void add_rows_of_tokens(Table& table, const Job& job) {
  table.add(job.sparse_gradients && is_one_bit(job.optimizer.kind), kOptimizer,
            "it says how gradients travel, and so does sparse_gradients: use AdamW, or "
            "sparse_gradients false");
  table.add_sent({job.sparse_gradients, "sparse_gradients", "sparse_gradients false",
                  "adds and updates", "so does sparse_gradients"});
}

}  // namespace

void judge_exclusions(const Job& job, Values& values, Diagnostics& diagnostics) {
  Table table(job, values);
  add_hooks(table, job);
  add_signs(table, job);
  add_axes(table, job);
  add_experts(table, job);
  add_8bit_state(table, job);
  add_weight_average(table, job);
  add_rows_of_tokens(table, job);
  add_imported_state(table, job);
  for (const Exclusion& row : table.rows())
    if (row.had) diagnostics.error(row.key, row.message);
}

}  // namespace dstrain
