// Section activation_checkpointing: how DeepSpeed stores the activations that it keeps. Which ones are kept
// is set by pipeline.activation_checkpoint_interval or dstrain.recompute.
#include <fmt/core.h>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace keys {
namespace {

constexpr Rule kToHost{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (!to_boolean(value).value_or(false)) return {State::no_effect, "off"};
      if (!facts.recomputes)
        return {State::no_effect,
                "nothing is recomputed: pipeline.activation_checkpoint_interval or "
                "dstrain.recompute turns it on"};
      return {State::honoured, "what is kept for recompute is in the host's memory meanwhile"};
    },
    "false, or without recompute: no_effect; true: honoured"};

}  // namespace

std::vector<KeySpec> activation_checkpointing() {
  const auto without_effect = [](std::string_view key, std::string_view why) {
    return KeySpec{
        .key = key, .fallback = "false", .state = State::no_effect, .note = why, .nullable = true};
  };
  return {
      {.key = "activation_checkpointing", .type = Type::section},
      without_effect("activation_checkpointing.partition_activations",
                     "ranks that share layers keep parts of the activations anyway; "
                     "pipeline.activation_checkpoint_interval turns recompute on"),
      without_effect("activation_checkpointing.contiguous_memory_optimization",
                     "every activation has a fixed place in one block of memory anyway"),
      {.key = "activation_checkpointing.cpu_checkpointing",
       .fallback = "false",
       .note = "what is kept for recompute is in the host's memory meanwhile, as with "
               "dstrain.offload.activations cpu",
       .rule = &kToHost,
       .nullable = true},
      without_effect("activation_checkpointing.synchronize_checkpoint_boundary",
                     "the plan orders the step, so there is nothing to wait for"),
      {.key = "activation_checkpointing.profile",
       .fallback = "false",
       .note = "metrics.jsonl has step_ms",
       .rule = &rules::kWarns,
       .nullable = true},
      {.key = "activation_checkpointing.number_checkpoints",
       .type = Type::integer,
       .state = State::no_effect,
       .note =
           "it sizes a buffer of DeepSpeed's; pipeline.activation_checkpoint_interval says what "
           "is kept",
       .min = 0},
  };
}

}  // namespace keys
}  // namespace dstrain
