// Longest: the longest sequence with which a job's own model trains, found by planning. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/plan/plan.h"
#include "runtime/plan/settings/fit.h"

namespace dstrain {

// The longest samples of a model that train in the memory that there is.
struct LongestSequence {
  int64_t tokens = 0;      // of a sample; 0: not even the shortest one fits
  PlannedMemory memory{};  // of each rank
  std::string limit{};  // what the next longer one exceeds; empty: it is as long as samples may be
};

// Returns the longest sequence of the job's model with micro-batch 1, a multiple of 128 tokens that divides among the
// job's ranks, for which `exceeded` returns nothing. The model's context grows with it. What the job leaves open is
// settled as a run would settle it that has no other way to fit. Models without tokens, and those whose
// sizes are fixed, have none.
LongestSequence longest_sequence(const Job& job, const PlanInputs& inputs,
                                 const std::function<std::string(const PlannedMemory&)>& exceeded);

}  // namespace dstrain
