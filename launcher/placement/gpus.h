// The GPU of each rank. A slot's number is that of its GPU on its host, as in DeepSpeed: --include node1:2,3 uses GPUs
// 2 and 3 of node1. The launching process tells the ranks by an environment variable.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/resources.h"

namespace dstrain {

// The slots of all ranks by rank, separated by commas. Unset: the ranks of a host have slots 0, 1, 2, ...
inline constexpr const char* kGpusVariable = "DSTRAIN_GPUS";

// Returns the value of the variable for these hosts; empty if it is not needed.
std::string gpus_text(const std::vector<HostRanks>& hosts);

// Returns which of its host's `gpus` GPUs a rank uses; 0 if there are none. `text`: the variable's value, empty where
// it is unset; then the ranks of a host take its GPUs in turn. Throws UserError if the slot has no GPU.
int gpu_of_rank(const std::string& text, int rank, int rank_on_host, int gpus);

}  // namespace dstrain
