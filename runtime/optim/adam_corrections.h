// Adam's bias corrections: the divisors 1 - beta^t of its two moments. The trainer writes them into the step
// state before a step.
#pragma once

#include <cstdint>

#include "runtime/config/job.h"
#include "runtime/optim/lr_schedule.h"

namespace dstrain {

// The two bias corrections of one update, by which Adam divides its moments.
struct AdamCorrections {
  float first = 1;   // 1 - beta1^t
  float second = 1;  // 1 - beta2^t
};

// Returns the divisors of update number t = applied_steps + 1 with the betas of `rate`, computed in double. Both
// are 1 if the optimizer has no bias correction (SGD too).
AdamCorrections adam_corrections(const OptimizerConfig& optimizer, const Rate& rate,
                                 int64_t applied_steps);

}  // namespace dstrain
