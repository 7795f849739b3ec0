// Resume: whether a run may continue from a checkpoint. Compares the RunFacts of the run that saved the
// checkpoint with those of the job that resumes it. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/engine/resume/run_facts.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"

namespace dstrain {

// Returns the facts that a checkpoint stores.
std::map<std::string, std::string> kept_facts(const RunFacts& facts);

// Returns the number of training samples that the steps before the checkpoint used.
int64_t samples_before(const CheckpointLabel& label, const Job& job);

// Returns whether the job goes on with the loss scale that the checkpoint has reached: both adapt it. Else the job's own
// holds.
bool keeps_loss_scale(const CheckpointLabel& label, const Job& job);

// Returns a line for each fact that differs between the checkpoint and `facts`, which are those of `job`: the
// old value, the new value and the consequence. Throws UserError if a fact differs that decides which tensors there are
// (FactChange::impossible), or one that is not allowed to change (FactChange::forbidden) and that
// job.resume_with_changes does not accept.
std::vector<std::string> changes_since(const CheckpointInfo& checkpoint, const Job& job,
                                       const RunFacts& facts);

// Throws UserError if `job` would use state of a 1-bit optimizer that was made under other settings.
// After `applied_steps` updates the checkpoint's second moment is frozen, and the job would update it again; or ranks
// have moved by themselves since they synchronised, and the job has other learning rates or intervals.
void check_frozen_state(const CheckpointInfo& checkpoint, const Job& job, const RunFacts& facts,
                        int64_t applied_steps);

// Return log lines: after which step the run resumes; which newer checkpoints were skipped, and why.
std::string resume_line(const CheckpointInfo& checkpoint);
std::vector<std::string> passed_over_lines(const CheckpointInfo& checkpoint);

}  // namespace dstrain
