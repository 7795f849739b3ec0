// Finds the instruction of a run at which its numbers part from those of a reference.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/verify/rank_record.h"

namespace dstrain {

// The instruction whose result differs although what it reads does not; or, where what it reads was brought to it, the
// one that brought it.
struct FirstDifference {
  int64_t step = 0;
  int rank = 0;  // of the configured run
  int64_t micro_batch = 0;
  std::string instruction;  // "linear blocks.0"
  std::string buffer;       // what differs
};

// The ranks of the configured run and their stages: rank r of stage s of N ranks each is s * N + r. Of a stage's ranks
// `layer_ranks` that follow one another have parts of the same samples and layers: those of a data-parallel rank.
struct ConfiguredRun {
  const std::vector<RankRecord>& ranks;
  int data_ranks = 1, layer_ranks = 1;
  int stage_ranks() const { return data_ranks * layer_ranks; }
  int stages() const { return static_cast<int>(ranks.size()) / stage_ranks(); }
};

// Compares with a run that has the same micro-batches, and the same parts of them and of layers, on the ranks of its only
// stage or of each of its stages (plain_job()), step by step: what the micro-batches compute, the summed gradients, the
// updates, the state. A value that is computed again is compared each time. Returns the first difference, or nothing.
std::optional<FirstDifference> first_difference(const std::vector<RankRecord>& plain,
                                                const ConfiguredRun& run);

// The same, but compares the state after a step alone: weights, and what the optimizer and the codecs keep.
std::optional<FirstDifference> different_state(const std::vector<RankRecord>& plain,
                                               const ConfiguredRun& run, int64_t step);

// Returns what of the configured run's state after a step the plain run does not have: "exp_avg of w on rank 1".
std::vector<std::string> state_without_counterpart(const std::vector<RankRecord>& plain,
                                                   const ConfiguredRun& run, int64_t step);

// Compares what the micro-batches of the first step compute, but for sums over several of them, with the run on one rank
// that has them one after the other (naive_job()). Where ranks have parts of samples and layers, only values that each
// has whole are compared.
std::optional<FirstDifference> first_difference_of_micro_batches(const RankRecord& naive,
                                                                 const ConfiguredRun& run);

}  // namespace dstrain
