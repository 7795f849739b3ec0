// How the ranks of a run are divided: stages of a pipeline, ranks with samples of their own, of which some divide the experts
// of each layer, ranks that have parts of the same samples (sequence), ranks that share each layer (tensor).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Sets the pipeline, the expert ranks, the sequence ranks and the tensor ranks of `job`. Returns how many ranks have samples of their own;
// nothing if `ranks` is absent, or if it is no multiple of the product of the others, which is reported. `ranks_origin`
// names the source of `ranks` in messages.
std::optional<int64_t> solve_axes(Job& job, Values& values, Diagnostics& diagnostics,
                                  std::optional<int64_t> ranks, const std::string& ranks_origin);

// Returns where the number of ranks with samples of their own comes from: "--num_gpus / 2 stages / 2 tensor ranks".
std::string data_ranks_origin(const Job& job, const std::string& ranks_origin);

// Reports numbers of sequence and tensor ranks among which the model of a complete job does not divide.
void check_axes(const Job& job, Diagnostics& diagnostics);

// Reports a number of expert ranks among which the experts of a complete job do not divide, or that does not divide the ranks
// with samples of their own, if these are known.
void check_experts(const Job& job, Diagnostics& diagnostics, std::optional<int64_t> data_ranks,
                   const std::string& ranks_origin);

// Returns whether the model and the micro-batch of a job divide among its ranks.
bool divides_among_ranks(const Job& job);

}  // namespace dstrain
