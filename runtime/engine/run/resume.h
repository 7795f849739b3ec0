// Resume: whether a run may go on from a checkpoint: what the numbers of both depend on is compared, fact
// by fact. Stands on run_facts.h and storage. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/engine/run/run_facts.h"
#include "runtime/storage/checkpoint/checkpoint.h"

namespace dstrain {

// What a checkpoint keeps of a run's facts.
std::map<std::string, std::string> kept_facts(const RunFacts& facts);

// The training samples that were used before a checkpoint's next step.
int64_t samples_before(const CheckpointLabel& label, const Job& job);

// A line for each change between the run that saved the checkpoint and `job`, whose facts are `facts`:
// what was, what is, what follows. Throws UserError naming each change that makes other numbers of what
// the checkpoint holds, where job.resume_with_changes does not accept them.
std::vector<std::string> changes_since(const CheckpointInfo& checkpoint, const Job& job,
                                       const RunFacts& facts);

// The lines of a resume: from which step, which newer checkpoints were passed over and why.
std::string resume_line(const CheckpointInfo& checkpoint);
std::vector<std::string> passed_over_lines(const CheckpointInfo& checkpoint);

}  // namespace dstrain
