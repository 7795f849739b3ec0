// Steps of 1-bit Lamb with a frozen second moment.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/residency.h"
#include "runtime/plan/step_kinds.h"

namespace dstrain {

// After update(), which has appended a step of Lamb: replaces it. Each rank's share of the momentum travels as signs,
// each parameter's scaled to a root mean square of 1. Adds the codec state "worker_error" and "owner_error" of each
// unit, and "exp_avg_sq_fresh", "lamb_average", "lamb_factor" and "momentum_scale" of each parameter. Where the optimizer
// is sharded, adds "scaled_momentum:U", what came back from ranks, which a step of the kind `whole_momentum` begins with
// the momentum.
void send_lamb_momenta(Program& program, const Job& job, Place place, StepKind kind);

}  // namespace dstrain
