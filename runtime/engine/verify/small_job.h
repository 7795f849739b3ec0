// The user's job at sizes at which a step takes milliseconds: a small model of the same family and fewer ranks,
// micro-batches and steps. Every feature stays, and so does what it depends on: limits in elements shrink with the
// model, and numbers of steps so that every kind of step is taken.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/job.h"

namespace dstrain {

struct SmallJob {
  Job job;
  int64_t steps = 0;  // in which every kind of step of the job is taken
};

// Returns the small job of `job`, whose device must be chosen. Data, output, weights and checkpoints are left out, and
// the vocabulary is set where there is one. Pure. Throws UserError if the small model cannot have what the job asks for.
SmallJob small_job(const Job& job);

// Returns the sizes of both as a line: "2 layers of 32 channels, ... for 24 of 2048".
std::string sizes_text(const Job& job, const Job& small);

}  // namespace dstrain
