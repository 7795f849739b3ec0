// How the gradient of the token embedding travels where a job asks for sparse gradients. Pure functions of the job, so
// that all ranks and devices decide alike.
#pragma once

#include <cstdint>

#include "runtime/config/job.h"

namespace dstrain {

// The bytes that a rank of a ring sends in a step for the gradient of the token embedding.
struct SparseGradientBytes {
  int64_t rows = 0;   // the ids and the rows of all micro-batches, in the run's dtype, gathered
  int64_t table = 0;  // the table, in the wire's dtype, added over ranks
};
// Returns the bytes of both ways. The job must have its batch, its ranks and its vocabulary.
SparseGradientBytes sparse_gradient_bytes(const Job& job);

// Returns whether the gradient travels as rows: the job asks for it, several ranks add their gradients, the head does
// not share the table, the table is not frozen, and rows are fewer bytes.
bool sends_token_rows(const Job& job);

}  // namespace dstrain
