// A simulation of a pipeline: when each stage does each task of its order, if every phase of every part takes
// a given time. It answers whether the orders of the stages fit together, what a step takes, and how much of
// it the stages wait.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/pipeline/schedule.h"

namespace dstrain {

// The orders of all stages, and the part that each of their chunks is.
struct PipelineOrders {
  std::vector<std::vector<StageTask>> tasks;  // of every stage, in its order
  std::vector<std::vector<int>> parts;        // of every stage: the part that each chunk is

  size_t stages() const { return tasks.size(); }
};

// Returns the orders of a schedule. Throws InternalError if schedule_error has an answer.
PipelineOrders pipeline_orders(PipelineSchedule schedule, int stages, int virtual_stages,
                               int micro_batches);

// How long the phases of a part take for one micro-batch, by phase, in any unit.
using PhaseSeconds = std::array<double, kPhases>;

// The times at which a stage begins and ends a task.
struct TaskTime {
  double begin = 0, end = 0;
  bool operator==(const TaskTime&) const = default;
};

// The result of a simulation.
struct PipelineTimes {
  std::vector<std::vector<TaskTime>> tasks;  // of every stage, in its order; empty with an error
  std::optional<std::string> error;          // why the step does not end or is not complete
  double length = 0;                         // of the step
  double bubble = 0;                         // the share of the stages' time in which they wait
};

// Simulates one step. A task begins once the task before it in its stage has ended and its input is there: of a
// forward pass the output of the part before, of a backward pass the chunk's own forward pass and the gradient
// from the part behind, of weight gradients the chunk's backward pass. What comes from another stage is there
// `message_time` after it was computed, while both stages work on.
//
// It is an error if a task waits for ever; if a part passes micro-batches on in another order than the next
// part takes them; if a task is there twice; or if a chunk does not do what part 0 does forward. The error
// names the stage and the task. `times` has an entry for each part.
PipelineTimes run_orders(const PipelineOrders& orders, const std::vector<PhaseSeconds>& times,
                         double message_time);

// Returns for each chunk of a stage how many micro-batches it holds at most: those whose forward pass is done
// and whose gradients are not, be it in the backward task or in weight_grad.
std::vector<int> in_flight(const std::vector<StageTask>& order, int chunks);

// Returns the task in words: "forward of micro-batch 3 in chunk 0".
std::string task_text(const StageTask& task);

}  // namespace dstrain
