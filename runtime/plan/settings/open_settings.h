// Open settings: what a configuration leaves to the memory: whether the ranks of a tensor group gather rows again, and in
// how many pieces of rows the loss and the MLPs are computed. None of it changes a number of a run on a CPU. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

// A setting that the memory has decided.
struct SettledSetting {
  std::string key, value, why;  // "dstrain.mlp_chunks", "4", "the memory does not suffice for ..."
};

// Returns the job with the cheapest of what it leaves open, and the fewest pieces, with which `fits` returns true. Pieces
// of the loss cost nothing, rows that are gathered again traffic, pieces of MLPs their first products once more. nullopt:
// nothing is open, or nothing suffices. `fits` is called for a dozen jobs or fewer, of the same job for the same ones.
std::optional<Job> made_to_fit(const Job& job, const std::function<bool(const Job&)>& fits);

// Returns the job with everything that it leaves open settled for the least memory.
Job with_most_settled(const Job& job);

// Returns what `job` has and `before`, the same job, leaves open.
std::vector<SettledSetting> settled_between(const Job& before, const Job& job);

}  // namespace dstrain
