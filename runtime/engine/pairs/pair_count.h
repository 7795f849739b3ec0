// What a micro-batch counts in the loss where samples do not count alike.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/config/job.h"
#include "runtime/core/input_tensor.h"
#include "runtime/engine/step/batch_feed.h"

namespace dstrain {

// Returns how many pairs of answers samples of two rows have: documents that begin at the same place of both rows and have a
// target in both. inputs: those of a micro-batch; 0 if labels or documents are not among them.
int64_t count_pairs(std::span<const InputTensor> inputs);

// Returns what counts in the job's loss: pairs where samples hold several, or what the model's family says; null: targets or
// samples.
BatchFeed::Weigh weigh_of(const Job& job);

}  // namespace dstrain
