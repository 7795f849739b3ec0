// Model FLOPs utilization (MFU): how much of the speed of its processors a run reaches, as PaLM counts (Chowdhery et al.,
// 2022, appendix B): the FLOPs that the model needs over the time of a step, over the FLOP/s that all ranks could do. That
// is not a data sheet's number but what one rank reaches in a large product.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/engine/step/backend.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Returns the FLOPs that one rank's part of the model needs in a step: those of products of weights, and of attention over
// the pairs of queries and keys that see each other. What is computed again in the backward pass is not needed. Pure.
double model_flops(const Plan& plan);

// Returns the FLOP/s of one product of matrices of `size` rows and columns in a dtype with `threads` threads, the best of
// a few, on the backend's device; 0 if the device refuses the memory of three such matrices, which are released.
double product_rate(const Backend& backend, DType dtype, int64_t size, int threads);

// Returns the seconds that a step of all ranks would take if every rank did its products at rank 0's product_rate(); 0 if
// rank 0 shows no live line, which alone needs the time, or could not measure. Takes some milliseconds, before the
// memory of the run is reserved. Collective.
double full_rate_seconds(const Plan& plan, const Backend& backend, const Job& job, int threads,
                         Communicator& comm);

}  // namespace dstrain
