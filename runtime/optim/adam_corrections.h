// Adam's bias corrections, the divisors 1 - beta^t of its two moments. Stands on the configuration
// and the schedule; the trainer writes both into the step state before a step.
#pragma once

#include <cstdint>

#include "runtime/config/job.h"
#include "runtime/optim/lr_schedule.h"

namespace dstrain {

struct AdamCorrections {
  float first = 1;   // 1 - beta1^t
  float second = 1;  // 1 - beta2^t
};

// The divisors of the update number t = applied_steps + 1 with the betas of `rate`; both are 1
// where the optimizer has no bias correction (SGD too). Computed in double.
AdamCorrections adam_corrections(const OptimizerConfig& optimizer, const Rate& rate,
                                 int64_t applied_steps);

}  // namespace dstrain
