// Section activation_checkpointing: how DeepSpeed stores the activations that it keeps. Which ones are kept
// is set by pipeline.activation_checkpoint_interval or dstrain.recompute.
#include <fmt/core.h>

#include "runtime/config/keys/coerce.h"
#include "runtime/config/keys/key_table.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace keys {

std::vector<KeySpec> activation_checkpointing() {
  const auto without_effect = [](std::string_view key, std::string_view why) {
    return KeySpec{
        .key = key, .fallback = "false", .state = State::no_effect, .note = why, .nullable = true};
  };
  const auto not_yet = [](std::string_view key, std::string_view why) {
    return KeySpec{
        .key = key, .fallback = "false", .note = why, .rule = &rules::kFlag, .nullable = true};
  };
  return {
      {.key = "activation_checkpointing", .type = Type::section},
      without_effect("activation_checkpointing.partition_activations",
                     "it splits over tensor-parallel ranks, and there is one; "
                     "pipeline.activation_checkpoint_interval turns recompute on"),
      without_effect("activation_checkpointing.contiguous_memory_optimization",
                     "every activation has a fixed place in one block of memory anyway"),
      not_yet("activation_checkpointing.cpu_checkpointing",
              "moving kept activations to the host is not available yet: use false"),
      without_effect("activation_checkpointing.synchronize_checkpoint_boundary",
                     "the plan orders the step, so there is nothing to wait for"),
      {.key = "activation_checkpointing.profile",
       .fallback = "false",
       .note = "metrics.jsonl has step_ms",
       .rule = &rules::kWatch,
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
