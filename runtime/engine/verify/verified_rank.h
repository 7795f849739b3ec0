// One rank of one run of a verification.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/engine/run/run.h"
#include "runtime/engine/verify/rank_record.h"
#include "runtime/engine/verify/seeded_fault.h"

namespace dstrain {

struct VerifiedSteps {
  int64_t steps = 0;     // the last step; a resumed run begins behind its checkpoint's
  int64_t observed = 0;  // steps whose instructions and state are recorded
  std::optional<Fault> fault{};
  bool terms = false;  // those of gradients are recorded
};

// Trains this rank's part of a job and returns what it computed. A job that saves its last step runs as a training run
// does and leaves a checkpoint. Collective over ctx.comm, whose size is job.ranks. A failure of the steps is in the
// record; the communicator is aborted then.
RankRecord run_verified_steps(const Job& job, const Dataset& data, RunContext& ctx,
                              const VerifiedSteps& request);

// Returns made-up samples for a model: token ids of the seed, or the features that its family has.
std::unique_ptr<Dataset> made_up_samples(const Job& job);

// Returns the samples of the data of `job` for its small job, which has less tokens in each: those at equal distances, with
// ids modulo its vocabulary. A token of it counts if one of those between it and the next one does.
std::unique_ptr<Dataset> shrunk_samples(std::unique_ptr<Dataset> data, const Job& job,
                                        const Job& small);

}  // namespace dstrain
