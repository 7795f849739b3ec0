// The output of `dstrain plan`: a plan and its memory, as text and as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/plan/plan.h"

namespace dstrain {

// Returns a header line, the memory table by class, and a line for each instruction with queue, group,
// operands, bytes and GFLOP. An instruction that every micro-batch repeats has one line.
std::string plan_to_text(const RankPlan& rank, const std::string& title);

// Returns the memory table by class, in bytes, with its total.
std::string memory_text(const MemoryTable& memory);

// Values that a plan assumes because neither the configuration nor the data has them, by key.
using Assumptions = std::map<std::string, int64_t>;

// Returns the object of `dstrain plan --json` (docs/formats.md): every instruction of the step in order,
// micro-batches unrolled.
std::string plan_to_json(const RankPlan& rank, const Assumptions& assumed = {});

}  // namespace dstrain
