// StepPiece: the body of a step in pieces that a device replays as graphs. A step with many micro-batches is three of
// them, whatever their number: up to the end of the first micro-batch, one of those between, and from the last on. So
// the graphs' size does not grow with the number of micro-batches.
#pragma once

#include <memory>
#include <vector>

#include "runtime/core/devices/device.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// A piece of a step that is replayed as one graph: issues [begin, end) of the plan's order.
struct StepPiece {
  size_t begin = 0, end = 0;
  // How many micro-batches it is launched for, from `micro` on. The graph has the addresses and samples of `micro`.
  int64_t launches = 1;
  int32_t micro = 0;
  std::vector<int32_t>
      posted{};  // operations of a step that are posted by the end of the first launch, by channel
  std::vector<BufferId>
      moved{};  // buffers that each micro-batch has of its own and that a later launch reads
  std::unique_ptr<Graph> graph{};
};

// Divides issues [body, end) of a plan without stages. One piece if there are at most three micro-batches, or if those
// between the first and the last write memory that each has of its own, which a replay could not tell apart.
std::vector<StepPiece> step_pieces(const Plan& plan, size_t body);

}  // namespace dstrain
