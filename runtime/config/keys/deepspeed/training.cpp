// The top level: batch sizes, clipping, gradient reduction, data types.
#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"

namespace dstrain::keys {
namespace {

constexpr std::string_view kFloatTypes = "fp32|float32|float|fp16|float16|half|bf16|bfloat16";
constexpr std::string_view kOnePlace =
    "the gradient is divided once, in the loss's backward, so nothing is left to scale";

constexpr Rule kReduceOp{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      if (lower_case(value.text) == "mean") return {State::no_effect, std::string(kOnePlace)};
      return {State::refused,
              "a sum would depend on the number of ranks: use \"mean\" and a larger learning rate"};
    },
    "mean: no_effect; sum: refused"};

constexpr Rule kAccumulation{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const std::string name = lower_case(value.text);
      if (one_of("fp32|float32|float", name)) return {};
      if (one_of("fp16|float16|half", name) ? facts.fp16 : facts.bf16) return {};
      if (!facts.legal("fp16.enabled") || !facts.legal("bf16.enabled")) return {};
      if (facts.fp16) return {State::refused, "the run is fp16: use \"fp16\" or \"fp32\""};
      if (facts.bf16) return {State::refused, "the run is bf16: use \"bf16\" or \"fp32\""};
      return {State::refused, "an fp32 run adds its gradients in fp32: use \"fp32\""};
    },
    "fp32 and the run's type: honoured; others: refused"};

constexpr Rule kManaged{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      if (to_boolean(value).value_or(true))
        return {State::no_effect, "dstrain counts micro-batches"};
      return {State::refused, "there is no caller to mark the boundary: remove the key"};
    },
    "true: no_effect; false: refused"};

constexpr Rule kSparse{[](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
                         if (!to_boolean(value).value_or(false)) return {State::no_effect, "off"};
                         if (!facts.family->reads_tokens())
                           return {State::no_effect, "the model has no token embedding"};
                         if (facts.stage == 0) return {};
                         return {State::refused,
                                 "removed from DeepSpeed (0.19.8); here from stage 1 on each rank "
                                 "receives the sum of its own slice alone: use false, or stage 0"};
                       },
                       "false: no_effect; true: honoured at stage 0, else refused; no_effect for "
                       "a model without tokens"};

}  // namespace

std::vector<KeySpec> training() {
  constexpr double batch = 2147483647;
  return {
      {.key = "train_batch_size",
       .type = Type::integer,
       .note = "samples per optimizer step, over all ranks; unset: the other two times the ranks",
       .min = 1,
       .max = batch},
      {.key = "train_micro_batch_size_per_gpu",
       .type = Type::integer,
       .note = "samples per rank in one forward and backward; unset, and train_batch_size too: 8, "
               "halved until the plan fits",
       .min = 1,
       .max = batch},
      {.key = "gradient_accumulation_steps",
       .type = Type::integer,
       .note = "micro-batches per rank and step; unset: 1, or what the other two leave",
       .min = 1,
       .max = batch},
      {.key = "managed_gradient_accumulation", .fallback = "true", .rule = &kManaged},
      {.key = "gradient_clipping",
       .type = Type::real,
       .fallback = "1.0",
       .automatic = "1.0",
       .note = "largest L2 norm of the gradient; 0, and as in DeepSpeed any number below: off"},
      {.key = "steps_per_print",
       .type = Type::integer,
       .fallback = "10",
       .note = "optimizer steps between two lines of the log",
       .min = 1,
       .nullable = true},
      {.key = "communication_data_type",
       .type = Type::choice,
       .note = "how gradients travel; unset: the run's type",
       .choices = kFloatTypes},
      {.key = "seq_parallel_communication_data_type",
       .type = Type::choice,
       .fallback = "\"fp32\"",
       .state = State::no_effect,
       .note = "gradients of all ranks travel as communication_data_type says",
       .choices = kFloatTypes,
       .nullable = true},
      {.key = "data_types", .type = Type::section},
      {.key = "data_types.grad_accum_dtype",
       .type = Type::choice,
       .fallback = "\"fp32\"",
       .note = "what gradients are accumulated and held in, over micro-batches; DeepSpeed's "
               "default is the model's type",
       .rule = &kAccumulation,
       .choices = kFloatTypes,
       .nullable = true},
      {.key = "data_types.param_dtype",
       .type = Type::choice,
       .note = "must agree with the fp16 and bf16 sections",
       .choices = kFloatTypes},
      {.key = "data_types.keep_in_fp32_modules",
       .type = Type::strings,
       .state = State::no_effect,
       .note = "names buffers to keep in fp32, and registered buffers are fp32"},
      {.key = "data_types.buffer_dtype",
       .type = Type::choice,
       .state = State::no_effect,
       .note = "registered buffers are fp32",
       .choices = kFloatTypes},
      {.key = "prescale_gradients",
       .fallback = "false",
       .state = State::no_effect,
       .note = kOnePlace},
      {.key = "gradient_predivide_factor",
       .type = Type::real,
       .fallback = "1.0",
       .state = State::no_effect,
       .note = kOnePlace,
       .min = 0,
       .open = true},
      {.key = "gradient_allreduce_op",
       .type = Type::choice,
       .fallback = "\"mean\"",
       .rule = &kReduceOp,
       .choices = "mean|sum"},
      {.key = "sparse_gradients",
       .fallback = "false",
       .note =
           "true: the token embedding's gradient travels as rows of tokens where these are fewer "
           "bytes than the table; removed from DeepSpeed (0.19.8)",
       .rule = &kSparse},
      {.key = "disable_allgather",
       .fallback = "false",
       .state = State::no_effect,
       .note = "DeepSpeed never uses it"},
      {.key = "allgather_size",
       .type = Type::integer,
       .fallback = "500000000",
       .state = State::no_effect,
       .note = "the plan sizes its messages itself",
       .min = 0},
      {.key = "dataloader_drop_last",
       .fallback = "false",
       .state = State::no_effect,
       .note = "the order of samples has no end"},
      {.key = "zero_allow_untested_optimizer",
       .fallback = "false",
       .state = State::no_effect,
       .note = "every optimizer works at every stage"},
      {.key = "zero_force_ds_cpu_optimizer",
       .fallback = "true",
       .state = State::no_effect,
       .note = "the optimizer always runs where its state lives"},
      {.key = "use_data_before_expert_parallelism",
       .fallback = "false",
       .note = "expert groups are consecutive ranks of a stage, as DeepSpeed's expert_parallel has "
               "them: "
               "use false",
       .rule = &rules::kFlag},
      {.key = "graph_harvesting",
       .fallback = "false",
       .state = State::no_effect,
       .note = "removed from DeepSpeed (0.19.8); the whole step is planned before it runs"},
      {.key = "disable_python_gc",
       .fallback = "false",
       .state = State::no_effect,
       .note = "there is no Python"},
      {.key = "vocabulary_size",
       .type = Type::integer,
       .state = State::no_effect,
       .note = "the vocabulary is that of dstrain.model or the data's",
       .min = 1},
      {.key = "sequence_parallel_size",
       .type = Type::integer,
       .fallback = "1",
       .note = "ranks that have parts of the same samples (dstrain.sequence_parallel)",
       .rule = &rules::kAboveOne,
       .min = 1,
       .max = kMostRanksOfAxis},
      {.key = "data_parallel_size",
       .type = Type::integer,
       .note = "checked against the number of ranks that have different samples",
       .min = 1},
  };
}

}  // namespace dstrain::keys
