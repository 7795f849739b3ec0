// Section activation_checkpointing: recomputation of activations in the backward pass.
#include "runtime/config/keys.h"

namespace dstrain::keys {

std::vector<KeySpec> activation_checkpointing() {
  constexpr std::string_view why = "activation checkpointing is not available yet: use false";
  const auto flag = [why](std::string_view key) {
    return KeySpec{
        .key = key, .fallback = "false", .note = why, .rule = &rules::kFlag, .nullable = true};
  };
  return {
      {.key = "activation_checkpointing", .type = Type::section},
      flag("activation_checkpointing.partition_activations"),
      flag("activation_checkpointing.contiguous_memory_optimization"),
      flag("activation_checkpointing.cpu_checkpointing"),
      flag("activation_checkpointing.synchronize_checkpoint_boundary"),
      flag("activation_checkpointing.profile"),
      {.key = "activation_checkpointing.number_checkpoints",
       .type = Type::integer,
       .note = "activation checkpointing is not available yet: use null",
       .rule = &rules::kAboveZero,
       .min = 0},
  };
}

}  // namespace dstrain::keys
