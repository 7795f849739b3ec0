// The state of the optimizer, and how far the run has come, of a checkpoint that DeepSpeed has saved.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/storage/foreign/deepspeed_files.h"
#include "runtime/storage/foreign/foreign_weights.h"

namespace dstrain {

struct DeepSpeedState {
  // What the optimizer keeps of each parameter, by PyTorch's names: "exp_avg", "exp_avg_sq". Tensors have the names and sizes
  // of parameters.
  std::vector<std::pair<std::string, ForeignWeights>> slots;
  int64_t steps = 0, skipped = 0;  // of the run; skipped: those of them without an update
  int64_t samples = 0;
};

// Returns the state of a checkpoint. Throws UserError if it has none; at stage 0, where parameters have numbers alone, also if
// these do not tell which is which.
DeepSpeedState state_of_deepspeed(const DeepSpeedFiles& files);

}  // namespace dstrain
