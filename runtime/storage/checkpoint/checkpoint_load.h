// Loading a checkpoint into the state register, with any number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Checks a checkpoint before its values are read; throws if this run cannot take it.
using JudgeCheckpoint = std::function<void(const CheckpointInfo&)>;

// Fills the local tensors of `state` from the checkpoint that find_checkpoint chooses; collective. Floats of masters and
// of the optimizer's state are converted where the checkpoint has others. If its
// data turn out to be damaged and the user did not name it, the one before it is loaded. Returns what was
// loaded. Throws on every rank or on none: UserError, which names tensor and file, if something is
// missing, superfluous, of another shape or damaged, and what `judge` throws.
CheckpointInfo load_checkpoint(const std::string& dir, StateRegister& state, Communicator& comm,
                               const JudgeCheckpoint& judge = {});

// Fills the local tensors of `weights` from the masters of the checkpoint in the directory `dir`, or from the mean of
// those of several groups of ranks. Throws UserError if one is missing, of another shape or damaged.
void load_checkpoint_weights(const std::string& dir, StateRegister& weights);

// The same masters, read a piece at a time.
class CheckpointWeights {
 public:
  // `weights`: f32, without local tensors. Throws UserError if one is missing, or of another shape.
  CheckpointWeights(const std::string& dir, StateRegister weights);
  ~CheckpointWeights();

  // Reads elements [begin, begin + count) of a weight to `to`; `weight`: its index in the register. Throws UserError if
  // they are damaged.
  void read(size_t weight, int64_t begin, int64_t count, float* to);

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace dstrain
