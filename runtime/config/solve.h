// Solve: from legal values to the Job, and the checks that need more than one key. Stands on values.h
// and judge.h. Invariant: every field of the Job is read through Values, so it has an origin.
#pragma once

#include <optional>

#include "runtime/config/job.h"
#include "runtime/config/judge.h"
#include "runtime/config/load.h"
#include "runtime/config/values.h"

namespace dstrain {

// Hugging Face's default of per_device_train_batch_size.
inline constexpr int64_t kDefaultMicroBatch = 8;

struct BatchSolution {
  BatchConfig config;
  bool by_default = false;  // neither the whole batch nor the micro-batch is given
};

// train_batch = micro_batch * accumulation * ranks from any two or one of the three; where only the
// accumulation or nothing is given, with Hugging Face's micro-batch. Without `ranks` only what holds for
// every number of ranks is judged, and the result may be incomplete (zeros).
BatchSolution solve_batch(Values& values, Problems& problems, std::optional<int64_t> ranks,
                          const std::string& ranks_origin);

// Optimizer, schedule, data types, loss scale, reduction. `job.model` and `job.steps` are set before.
void solve_training(Job& job, Values& values, Problems& problems, const Facts& facts);

// Model, data, and the numbers of the section dstrain.
void solve_run(Job& job, Values& values, Problems& problems, const Facts& facts, bool need_data);

// What the size of the model and of a batch together rule out. `job` is otherwise complete.
void check_sizes(const Job& job, Problems& problems);

}  // namespace dstrain
