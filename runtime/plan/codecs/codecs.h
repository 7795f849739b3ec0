// Codecs: passes that let a tensor travel in another form. Each replaces a collective by a few instructions and is a
// file of its own.
#pragma once

#include <unordered_map>

#include "runtime/config/job.h"
#include "runtime/ir/codec_errors.h"
#include "runtime/ir/program.h"
#include "runtime/plan/residency.h"
#include "runtime/plan/step_kinds.h"

namespace dstrain {

// After gather(), if the job asks for it: parameters are gathered as int8. A rank packs its slice where the gather
// begins and unpacks those of all ranks before the first use. Where each replica has all parameters, replicas exchange
// packed slices at the beginning of a step ("shard:U"), and gathers stay within a replica.
void quantize_gathers(Program& program, const Job& job, Place place, const Residency& residency);

// After reduce(), if the job asks for it: a rank packs its gradients as int4 and sends each part to the rank that owns
// it, which adds them in f32. Where ranks are in groups, a part is first added by the rank of the sender's group that
// has its owner's number there, packed again, and then sent to the owner.
void quantize_gradients(Program& program, const Job& job, Place place, const Residency& residency);

// Returns whether gradients travel as low-rank factors (PowerSGD) in steps of this kind.
bool sends_factors(const Job& job, Place place, StepKind kind);

// Instead of reduce(), where sends_factors(): adds the gradients of the step over ranks as low-rank factors, whole on
// every rank. Adds the codec state "hook_factor" and, with error feedback, "hook_error".
void power_sgd(Program& program, const Job& job, Place place);

// After reduce(), where sends_token_rows() (runtime/config/sparse_gradients.h): the gradient of the token embedding is
// not added over ranks. All ranks gather the token ids and the rows of a micro-batch instead, and each makes the table's
// gradient of those of all ranks, added in f32 in the order of ranks. Throws InternalError if another instruction writes
// the table's gradient, or another parameter lies in front of it in its unit.
void gather_token_rows(Program& program, Place place);

// After update(): codec state that the step has made replaces the old one, unless the step is skipped.
void commit_codec_state(Program& program);

// Returns whether each shard group updates weights of its own in steps of this kind (post-local SGD). reduce() and
// update() then add along the axis `shard`.
bool updates_in_groups(const Job& job, StepKind kind);
// After update(), in such steps: in those of the kind `regular` the mean of the groups' weights replaces their weights,
// unless the step is skipped. Of each unit a rank adds one slice to those of its counterparts in the other groups, and
// gathers the other slices from its own group. In other steps nothing is added.
void send_in_groups(Program& program, const Job& job, Place place, StepKind kind);

// After the other codecs, in training: measures the rounding of quantized tensors in the last micro-batch. Each rank
// compares the part that it owns before it is packed and after it is unpacked. For every unit, two sums of squares in f64,
// of the differences and of the values before, are in the buffers codec_error_name() of each class of tensor that is packed.
void measure_codecs(Program& program, const Job& job, Place place);

// Returns for each buffer that has parameters or gradients of a unit, gathered ones too, the axes along which ranks divide
// the unit.
std::unordered_map<BufferId, Axes> axes_of_state(const Program& program);

// Returns the buffers that packed parameters are unpacked to, by the buffers that they are gathered in.
std::unordered_map<BufferId, BufferId> unpacked_gathers(const Program& program);
// Returns the buffer that has the parameters of a unit gathered, as they are computed with, from this instruction on;
// kNone if it gathers none. A rank that holds all parameters packed unpacks them instead. What replicas exchange is
// gathered again within each of them, and what the end of a step gathers is whole parameters, or sums of the optimizer.
// `unpacked`: unpacked_gathers() of the program.
BufferId gathered_from(const Program& program, const Instruction& op,
                       const std::unordered_map<BufferId, BufferId>& unpacked);

}  // namespace dstrain
