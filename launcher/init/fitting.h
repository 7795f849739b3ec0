// Fitting: the ZeRO stage, recompute, offload and micro-batch with which a configuration fits into the memory that there is,
// found by planning it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/init/config_lines.h"
#include "runtime/config/load.h"

namespace dstrain {

// The memory of each host of a run, in bytes, and what its ranks are.
struct FittedMemory {
  int64_t device = 0;  // of each rank's GPU; 0: ranks compute on CPUs
  int64_t host = 0;    // of all ranks of a host together
  int ranks = 1;       // on each host
};

// What was found.
struct Fitting {
  std::vector<ConfigLine> lines;  // zero_optimization, and what else the memory asks for
  int64_t micro_batch = 0;
  int64_t bytes =
      0;  // that each rank reserves, of its device if that is limited, else of device and host
  std::string assumption{};  // about the vocabulary; empty: none
  std::string model{};       // its family and the number of its parameters
};

// Returns the first settings that fit, of those that cost the least time first: the lowest ZeRO stage, the largest
// micro-batch up to 8 that divides what each rank computes of `batch` samples in a step; with recompute and offload only
// where no stage fits without. `stage`: this one only. Throws UserError if nothing fits, or if the request is wrong.
Fitting settings_that_fit(const ConfigRequest& request, int64_t batch, const FittedMemory& memory,
                          std::optional<int64_t> stage);

}  // namespace dstrain
