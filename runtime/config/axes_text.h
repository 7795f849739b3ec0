// How many ranks a run has along each axis of its mesh, as text.
#pragma once

#include <string>

#include "runtime/config/job.h"

namespace dstrain {

// The numbers of ranks along the axes, whose product is the number of all ranks.
struct AxisRanks {
  int stages = 1, data = 1, sequence = 1, tensor = 1;
};

// Returns those of a job.
inline AxisRanks axis_ranks(const Job& job) {
  return {job.pipeline.stages, job.data_ranks(), job.sequence_ranks, job.tensor_ranks};
}

// Returns whether the ranks of a run are divided otherwise than by samples alone.
inline bool has_model_axes(const AxisRanks& ranks) {
  return ranks.stages > 1 || ranks.sequence > 1 || ranks.tensor > 1;
}

// Returns the axes with more than one rank: "2 pipeline stages x 3 data-parallel ranks x 2 sequence ranks x 2 tensor
// ranks"; empty if there is none.
std::string axes_text(const AxisRanks& ranks);

}  // namespace dstrain
