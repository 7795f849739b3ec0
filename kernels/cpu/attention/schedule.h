// Divides attention's work among threads. Without a window late query blocks and early key blocks cost more, so ranges
// have equal cost, not equal length.
#pragma once

#include <vector>

#include "kernels/cpu/attention/implementation.h"

namespace dstrain::attention {

// A piece of the forward pass for one thread: some query blocks of one (sample, head of queries) pair.
struct ForwardTask {
  int64_t head;
  Range query_blocks;
};

// A piece of the backward pass for one thread: a part of the gradients of one (sample, head of keys) pair and of the heads
// of queries that see it.
struct BackwardTask {
  int64_t kv_head;
  GradPart part;
};

// Returns the tasks of each thread in the forward pass: consecutive query blocks of consecutive heads.
std::vector<std::vector<ForwardTask>> schedule_forward(const AttentionShape& shape,
                                                       const Implementation& implementation,
                                                       int threads);

// Returns the tasks of each thread in the backward pass: whole heads of keys, and ranges of blocks of the remaining heads
// if these do not divide evenly.
std::vector<std::vector<BackwardTask>> schedule_backward(const AttentionShape& shape,
                                                         const Implementation& implementation,
                                                         int threads);

}  // namespace dstrain::attention
