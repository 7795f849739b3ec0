// Section dstrain: what the training loss has besides the cross-entropy.
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {

std::vector<KeySpec> loss() {
  return {
      {.key = "dstrain.label_smoothing",
       .type = Type::real,
       .fallback = "0",
       .note = "the share of each target that all classes have alike, as PyTorch's cross_entropy "
               "has it; validations are without it",
       .min = 0,
       .max = 1,
       .open = true},
      {.key = "dstrain.z_loss",
       .type = Type::real,
       .fallback = "0",
       .note = "each target's loss has this times the square of the logarithm of the sum of "
               "exp(logits) too, which keeps logits small: 1e-4; validations are without it",
       .min = 0,
       .max = 1},
  };
}

}  // namespace dstrain::keys
