// Schedules of a pipeline. The layers of a model are divided into parts, in model order; each stage has one
// part or more, its chunks. A schedule is the order in which a stage works on its chunks and micro-batches:
// a pure function, so every rank knows what every other rank does and when.
//
// In every schedule the gradients of a chunk are computed in ascending order of micro-batch, so that their
// sums have the order of plain accumulation.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/pipeline_schedule.h"
#include "runtime/ir/program.h"

namespace dstrain {

// One piece of work of a stage.
struct StageTask {
  Phase phase = Phase::forward;
  int32_t chunk = 0;
  int32_t micro = 0;
  bool operator==(const StageTask&) const = default;
};

// Identifies a chunk, a part of the model on a stage of a pipeline: its stage, and its number on the stage.
struct StageChunk {
  int stage = 0;
  int chunk = 0;
  bool operator==(const StageChunk&) const = default;
};

// Returns the work of `stage` in order. A single stage takes each micro-batch forward and backward before the
// next, in every schedule: this is gradient accumulation. Throws InternalError if schedule_error has an
// answer, or there is no such stage.
std::vector<StageTask> stage_order(PipelineSchedule schedule, int stages, int virtual_stages,
                                   int stage, int micro_batches);

// Returns the part that a chunk is, of 0 .. stages * chunks - 1. The parts go round the stages; with zb_v
// down the stages and up again, so that the first stage has the first part and the last.
int part_of(PipelineSchedule schedule, int stages, int stage, int chunk);

// Returns the stage and chunk that a part is: the inverse of part_of.
StageChunk chunk_of_part(PipelineSchedule schedule, int stages, int part);

}  // namespace dstrain
