// What the passes that compute in pieces of rows share: how long a piece is, and its rows of a buffer.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/ir/kernel.h"
#include "runtime/ir/program.h"

namespace dstrain {

// The sums over rows whose bits pieces keep. What it refers to must outlive it.
struct RowSums {
  const Program& program;
  const KernelLibrary& library;
  int threads = 1;
  std::vector<Instruction> weight_grads{};  // linear_weight_grad of all rows
  int64_t block = 1;  // rows of a block of sums of another kind: pieces are multiples of it
};

// Returns the rows of a piece: at most what `chunks` equal pieces of `rows` rows would have, but whole parts of `sums`;
// all rows where they have no smaller whole parts.
int64_t piece_length(const RowSums& sums, int64_t rows, int64_t chunks);

// Returns a view of rows [first, first + count) of a buffer that has `rows`: its first dimension, or its first ones
// together.
BufferId view_of_rows(Program& program, BufferId whole, int64_t rows, int64_t first, int64_t count);

}  // namespace dstrain
