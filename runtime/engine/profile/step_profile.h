// The profile of a training step on one rank: the work and the time of its model's modules, from its plan and its trace.
// Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/config/job.h"
#include "runtime/engine/metrics/phase_times.h"
#include "runtime/engine/profile/module_tree.h"
#include "runtime/engine/step/trace.h"

namespace dstrain {

// The time of a step's phases in seconds: of the forward and the backward pass of one micro-batch, the mean of the
// step's, of the update, and of the whole step.
struct StepSeconds {
  double forward = 0, backward = 0, update = 0, step = 0;
};

struct StepProfile {
  int64_t steps_before = 0;  // that were done before it
  int ranks = 1, data_ranks = 1, stages = 1, tensor_ranks = 1, sequence_ranks = 1;
  int64_t micro_batch = 1, micro_batches = 1;  // samples of one; those of a step
  // The parameters of the rank's modules that it holds between their uses, where they are sharded.
  std::optional<int64_t> held_parameters{};
  int64_t model_parameters = 0;  // of all stages of a pipeline
  double model_flops = 0;        // of a micro-batch's forward pass through all of them
  ModuleNode model{};            // of the rank's stage, and there of its part of each layer
  StepSeconds measured{}, estimated{};
};

// Returns the estimate of the plan, from the rates of runtime/plan/cost/machine_rates.h; without waiting for other ranks,
// but in `step` with the time of what is sent.
StepSeconds estimated_seconds(const Plan& plan, DeviceChoice device);

// Returns the profile of a step whose trace is complete. A module's time is that of its instructions; waiting, reading the
// batch and what belongs to no module count in the whole model's. `model_flops` is set to the rank's own: the caller adds
// those of the ranks that have other parts of the micro-batch's forward pass.
StepProfile profile_of(const Job& job, const StepTrace& trace, const StepPhases& phases);

}  // namespace dstrain
