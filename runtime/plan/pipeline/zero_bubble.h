// Zero-bubble schedules (Qi et al., "Zero Bubble Pipeline Parallelism", 2023, and "Pipeline Parallelism with
// Controllable Memory", 2024): a backward pass is split, and weight gradients, which nobody waits for, fill
// the time in which a stage would wait. An order is the record of a simulation in which each task takes one
// unit of time, its inputs are there once the unit before has ended, and every stage takes the first task
// that its list of priorities allows.
#pragma once

#include <vector>

#include "runtime/plan/pipeline/schedule.h"

namespace dstrain {

// Returns the orders of all stages for zb_h1: as 1F1B, at most `stages` micro-batches are held.
std::vector<std::vector<StageTask>> zb_h1_orders(int stages, int micro_batches);

// Returns the orders of all stages for zb_v, where a stage has two chunks and holds at most 2 * stages
// micro-batches of them: as many bytes as `stages` of a whole stage.
std::vector<std::vector<StageTask>> zb_v_orders(int stages, int micro_batches);

}  // namespace dstrain
