// How a run trains: precision, loss scale, optimizer, learning-rate schedule, ZeRO and reduction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/config/job.h"
#include "runtime/config/keys/table/facts.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Reports what has no effect because there is one data-parallel rank, which has no peers to send to.
void judge_lone_rank(const Job& job, Diagnostics& diagnostics);

// Reports shards that do not divide the data-parallel ranks evenly.
void check_shards(const Job& job, const Values& values, Diagnostics& diagnostics,
                  int64_t data_ranks, const std::string& ranks_origin);

// Fills these parts of `job`. The caller must have set `job.model` and `job.steps`.
void solve_training(Job& job, Values& values, Diagnostics& diagnostics, const Facts& facts);

}  // namespace dstrain
