// Whether a model can be divided among ranks that share its layers (tensor) or its samples (sequence). Width is filled up,
// so it divides among any number, and the vocabulary among any number of ranks that each have a token of it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/family/model_config.h"

namespace dstrain {

// The sizes that must divide among ranks.
struct DividedSizes {
  int64_t heads = 0, kv_heads = 0;  // of attention, and of its keys and values; 0: there is none
  int64_t tokens = 1;               // of a sample
  int64_t micro_batch = 0;          // samples; 0: not known yet
  int64_t classes = 0;              // tokens of the vocabulary, or labels; 0: not known yet
  bool operator==(const DividedSizes&) const = default;
};

// Returns the sizes of a model that trains on micro-batches of so many samples.
DividedSizes divided_sizes(const ModelConfig& model, int64_t micro_batch);

// Numbers of ranks along the axes that divide a model's sizes.
struct DividingRanks {
  int64_t sequence = 1, tensor = 1, expert = 1;
};

// Return why the sizes do not divide among the tensor ranks, or the sequence ranks, and which numbers of them work
// beside those of the other axis; empty if they do. Sequence ranks exchange tokens for heads, of those that a tensor rank
// has: keys and values of fewer heads are copied.
std::string tensor_problem(const DividedSizes& sizes, const DividingRanks& ranks);
std::string sequence_problem(const DividedSizes& sizes, const DividingRanks& ranks);

}  // namespace dstrain
