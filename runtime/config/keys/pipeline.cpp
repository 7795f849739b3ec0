// Section pipeline, and the other ways to split a model over ranks.
#include "runtime/config/keys/key_table.h"

namespace dstrain::keys {
namespace {

constexpr Rule kUnused{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                         if (facts.integer("pipeline.stages") <= 1)
                           return {State::no_effect, "the pipeline has one stage"};
                         return {State::not_yet, "pipelines are not available yet", true};
                       },
                       "one stage: no_effect; more: not_yet"};

constexpr Rule kTensor{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                         if (facts.integer("tensor_parallel.autotp_size") <= 1 &&
                             facts.integer("tensor_parallel.tp.tp_size") <= 1)
                           return {State::no_effect, "tensor parallelism is off"};
                         return {State::not_yet, "tensor parallelism is not available yet", true};
                       },
                       "sizes up to 1: no_effect; more: not_yet"};

}  // namespace

std::vector<KeySpec> pipeline() {
  constexpr std::string_view tp = "tensor parallelism is not available yet: use 1";
  return {
      {.key = "pipeline", .type = Type::section},
      {.key = "pipeline.stages",
       .type = Type::integer,
       .fallback = "1",
       .note = "pipelines are not available yet: use 1 or \"auto\"",
       .rule = &rules::kAboveOne,
       .min = 1},
      {.key = "pipeline.partition", .type = Type::string, .fallback = "\"best\"", .rule = &kUnused},
      {.key = "pipeline.seed_layers", .fallback = "false", .rule = &kUnused},
      {.key = "pipeline.activation_checkpoint_interval",
       .type = Type::integer,
       .fallback = "0",
       .note = "layers whose common input is kept; the rest is computed again",
       .rule = &rules::kRecompute,
       .min = 0},
      {.key = "pipeline.pipe_partitioned", .fallback = "true", .rule = &kUnused},
      {.key = "pipeline.grad_partitioned", .fallback = "true", .rule = &kUnused},
      {.key = "pipeline.use_reentrant", .fallback = "true", .rule = &kUnused},
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
       .state = State::not_yet,
       .note = "expert parallelism is not available yet: remove the section"},
  };
}

}  // namespace dstrain::keys
