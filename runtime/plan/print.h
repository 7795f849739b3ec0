// What `dstrain plan` prints: a plan and its memory, as text for people and as JSON for programs.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace dstrain {

// A header line, the memory table by class, and one line per instruction of the step with queue, group,
// operands, bytes and GFLOP; instructions repeated for every micro-batch stand once.
std::string plan_to_text(const RankPlan& rank, const std::string& title);

// The memory table by class, in bytes, with its total.
std::string memory_text(const MemoryTable& memory);

// The contract's object; every instruction of the step in order, micro-batches unrolled.
std::string plan_to_json(const RankPlan& rank);

}  // namespace dstrain
