// What codecs add to a step that is of no single unit, and what other code asks of them. How a unit's tensors travel is said
// in codec.h.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/codec_errors.h"
#include "runtime/ir/program.h"
#include "runtime/optim/step_kind.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// Where sends_factors(), at the end of reduce(): adds the gradients of the step over ranks as low-rank factors, whole on
// every rank. Adds the codec state "hook_factor" and, with error feedback, "hook_error".
void power_sgd(Program& program, const Job& job, const Place& place);
// Returns how many values it sends whole, beside the factors.
int64_t values_sent_whole(const Program& program);

// After update(), in steps with updates_in_groups(): in those of the kind `regular` the mean of the groups' weights replaces
// their weights, unless the step is skipped. Of each unit a rank adds one slice to those of its counterparts in the other
// groups, and gathers the other slices from its own group. In other steps nothing is added.
void send_in_groups(Program& program, const Job& job, Place place, StepKind kind);

// Returns the buffer that has the parameters of a unit gathered, as they are computed with, from this instruction on;
// kNone if it gathers none. What is gathered packed counts from its gather on. A rank that holds all parameters packed
// unpacks them instead.
BufferId gathered_from(const Program& program, const Instruction& op);

}  // namespace dstrain
