// The batch sizes: train_batch_size = micro-batch x accumulation x ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Hugging Face's default of per_device_train_batch_size.
inline constexpr int64_t kDefaultMicroBatch = 8;

// The batch sizes of a run.
struct BatchSolution {
  BatchConfig config;
  bool by_default = false;  // the file gives neither the whole batch nor the micro-batch
};

// Returns all three sizes, computed from those that the file gives. If it gives the accumulation alone
// or none, the micro-batch is kDefaultMicroBatch. Without `ranks` only errors that no number of ranks can
// avoid are reported, and sizes that depend on the ranks are 0. `ranks_origin` names the source of
// `ranks` in messages.
BatchSolution solve_batch(Values& values, Diagnostics& diagnostics, std::optional<int64_t> ranks,
                          const std::string& ranks_origin);

}  // namespace dstrain
