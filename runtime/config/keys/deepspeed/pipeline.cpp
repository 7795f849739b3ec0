// Section pipeline, and the other ways to split a model over ranks.
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr Rule kStages{[](const Facts&, const KeySpec&, const Node& value) -> Judgement {
                         if (to_integer(value).value_or(0) > 1) return {};
                         return {State::no_effect, "the pipeline has one stage"};
                       },
                       "1: no_effect; more: honoured"};

// Keys that shape a pipeline.
constexpr Rule kShape{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                        if (facts.integer("pipeline.stages") > 1) return {};
                        return {State::no_effect, "the pipeline has one stage", true};
                      },
                      "one stage: no_effect; more: honoured"};

constexpr Rule kTensor{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                         if (facts.integer("tensor_parallel.autotp_size") <= 1 &&
                             facts.integer("tensor_parallel.tp.tp_size") <= 1)
                           return {State::no_effect, "tensor parallelism is off"};
                         return {State::not_yet, "tensor parallelism is not available yet", true};
                       },
                       "sizes up to 1: no_effect; more: not_yet"};

}  // namespace

std::vector<KeySpec> pipeline() {
  constexpr std::string_view kModelParallel = "it splits messages between tensor-parallel ranks";
  constexpr std::string_view tp = "tensor parallelism is not available yet: use 1";
  return {
      {.key = "pipeline", .type = Type::section},
      {.key = "pipeline.stages",
       .type = Type::integer,
       .fallback = "1",
       .note = "parts of the model, each on its own ranks",
       .rule = &kStages,
       .min = 1,
       .max = 4096},
      {.key = "pipeline.schedule",
       .type = Type::choice,
       .fallback = "\"1f1b\"",
       .note = "order of the micro-batches; torch's names are accepted too",
       .rule = &kShape,
       .choices = "gpipe|1f1b|interleaved|zb-h1|zb-v|loopedbfs|interleaved1f1b|"
                  "interleavedzerobubble|zbvzerobubble"},
      {.key = "pipeline.virtual_stages",
       .type = Type::integer,
       .fallback = "1",
       .note = "parts of the model on each stage; schedules interleaved and zb-v: 2 by default",
       .rule = &kShape,
       .min = 1,
       .max = 64},
      {.key = "pipeline.partition",
       .type = Type::string_or_integers,
       .fallback = "\"best\"",
       .note =
           "best and parameters: equal numbers of parameters; uniform: equal numbers of layers; "
           "type:REGEX: equal numbers of layers whose names match; time and memory, which may cut "
           "a block between attention and MLP; or the first layer of each part",
       .rule = &kShape},
      {.key = "pipeline.seed_layers",
       .fallback = "false",
       .state = State::no_effect,
       .note = "initial weights depend on the seed and a parameter's name alone"},
      {.key = "pipeline.activation_checkpoint_interval",
       .type = Type::integer,
       .fallback = "0",
       .note = "layers whose common input is kept; the rest is computed again",
       .rule = &rules::kRecompute,
       .min = 0},
      {.key = "pipeline.pipe_partitioned",
       .fallback = "true",
       .state = State::no_effect,
       .note = kModelParallel},
      {.key = "pipeline.grad_partitioned",
       .fallback = "true",
       .state = State::no_effect,
       .note = kModelParallel},
      {.key = "pipeline.use_reentrant",
       .fallback = "true",
       .state = State::no_effect,
       .note = "it chooses a variant of PyTorch's checkpointing"},
      {.key = "tensor_parallel", .type = Type::section},
      {.key = "tensor_parallel.autotp_size",
       .type = Type::integer,
       .fallback = "0",
       .note = tp,
       .rule = &rules::kAboveOne,
       .min = 0},
      {.key = "tensor_parallel.tp_overlap_comm", .fallback = "false", .rule = &kTensor},
      {.key = "tensor_parallel.vocab_parallel_lm_head",
       .fallback = "",
       .rule = &kTensor,
       .nullable = true},
      {.key = "tensor_parallel.vocab_parallel_ce_backend",
       .type = Type::choice,
       .fallback = "\"torch\"",
       .rule = &kTensor,
       .choices = "torch|liger"},
      {.key = "tensor_parallel.dtype", .type = Type::string, .rule = &kTensor},
      {.key = "tensor_parallel.tp", .type = Type::section},
      {.key = "tensor_parallel.tp.tp_size",
       .type = Type::integer,
       .fallback = "1",
       .note = tp,
       .rule = &rules::kAboveOne,
       .min = 1},
      {.key = "tensor_parallel.tp.tp_grain_size",
       .type = Type::integer,
       .fallback = "1",
       .rule = &kTensor,
       .min = 1},
      {.key = "tensor_parallel.tp.mpu", .type = Type::opaque, .rule = &kTensor, .nullable = true},
      {.key = "tensor_parallel.tp.tp_group",
       .type = Type::opaque,
       .rule = &kTensor,
       .nullable = true},
      {.key = "tensor_parallel.kernel_inject", .fallback = "false", .rule = &kTensor},
      {.key = "tensor_parallel.replace_with_kernel_inject",
       .alias = "tensor_parallel.kernel_inject"},
      {.key = "tensor_parallel.injection_policy_tuple", .type = Type::strings, .rule = &kTensor},
      {.key = "tensor_parallel.preset_model", .type = Type::string, .rule = &kTensor},
      {.key = "tensor_parallel.partition_config",
       .type = Type::opaque,
       .rule = &kTensor,
       .nullable = true},
      {.key = "tensor_parallel.keep_module_on_host", .fallback = "false", .rule = &kTensor},
      {.key = "expert_parallel",
       .type = Type::opaque,
       .note = "expert parallelism is not available yet: remove the section",
       .rule = &rules::kNotYetIfOn},
  };
}

}  // namespace dstrain::keys
