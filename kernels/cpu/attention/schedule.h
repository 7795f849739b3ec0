// The division of attention's work over threads. Pure. The causal triangle makes late query blocks
// (and early key blocks) dearer, so ranges are cut at equal cost, not at equal count.
#pragma once

#include <vector>

#include "kernels/cpu/attention/implementation.h"

namespace dstrain::attention {

struct ForwardTask {
  int64_t head;
  Range query_blocks;
};

struct BackwardTask {
  int64_t head;
  GradPart part;
};

// Work of each thread in the forward pass: consecutive query blocks of consecutive heads.
std::vector<std::vector<ForwardTask>> schedule_forward(const AttentionShape& shape,
                                                       const Implementation& implementation,
                                                       int threads);

// Work of each thread in the backward pass: whole heads, and where heads are too few to go round
// evenly, ranges of blocks of the remaining heads.
std::vector<std::vector<BackwardTask>> schedule_backward(const AttentionShape& shape,
                                                         const Implementation& implementation,
                                                         int threads);

}  // namespace dstrain::attention
