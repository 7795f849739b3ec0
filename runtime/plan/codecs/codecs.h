// What codecs add to a step that is of no single unit, and what other code asks of them. How a unit's tensors travel is said
// in codec.h.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/codec_errors.h"
#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/step_kinds.h"

namespace dstrain {

// Returns whether gradients travel as low-rank factors (PowerSGD) in steps of this kind.
bool sends_factors(const Job& job, const Place& place, StepKind kind);

// Where sends_factors(), at the end of reduce(): adds the gradients of the step over ranks as low-rank factors, whole on
// every rank. Adds the codec state "hook_factor" and, with error feedback, "hook_error".
void power_sgd(Program& program, const Job& job, const Place& place);

// Returns whether each shard group updates weights of its own in steps of this kind (post-local SGD). reduce() and
// update() then add along the axis `shard`.
bool updates_in_groups(const Job& job, StepKind kind);
// After update(), in such steps: in those of the kind `regular` the mean of the groups' weights replaces their weights,
// unless the step is skipped. Of each unit a rank adds one slice to those of its counterparts in the other groups, and
// gathers the other slices from its own group. In other steps nothing is added.
void send_in_groups(Program& program, const Job& job, Place place, StepKind kind);

// Returns the buffer that has the parameters of a unit gathered, as they are computed with, from this instruction on;
// kNone if it gathers none. What is gathered packed counts from its gather on. A rank that holds all parameters packed
// unpacks them instead.
BufferId gathered_from(const Program& program, const Instruction& op);

}  // namespace dstrain
