// In which dtype a step holds its gradients. A pure function of the job, so that all ranks and devices decide alike.
#pragma once

#include "runtime/config/job.h"

namespace dstrain {

// Returns whether a 16-bit run holds the gradients of a step as they have travelled, in 16 bits, whatever grad_accum_dtype
// says: it has one micro-batch, so that nothing is added to a sum once it has been rounded to the wire's dtype, and that is
// the run's. Gradients that travel as something else are sums in f32, which that would round: packed ones, factors, signs, rows
// of tokens, terms of experts, and means of groups of ranks.
bool holds_gradients_as_sent(const Job& job);

}  // namespace dstrain
