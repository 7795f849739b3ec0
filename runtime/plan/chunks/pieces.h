// What the passes that compute in pieces of rows share: how long a piece is, its rows of a buffer, and how the instructions of
// an MLP, which are found by their operations alone, come to follow one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
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

// A range of a program's instructions with some of them moved together. Indices of instructions.
struct MovedTogether {
  size_t first = 0, last = 0;  // of the range
  std::vector<size_t> before,
      after;  // of the range, those that run in front of them and behind them
};

// Returns how the instructions `together` (ascending, not empty) come to follow one another, and behind what makes the
// buffers `also`: what they depend on runs before them, everything else of the range after. `gone`: instructions that are
// no longer there. nullopt: another order of two instructions would change what they compute.
std::optional<MovedTogether> moved_together(const Program& program,
                                            const std::vector<size_t>& together,
                                            const std::set<BufferId>& also,
                                            const std::set<size_t>& gone);

// Products that read the same rows, operations on single columns of their results, and the products that read what these
// make, with their backward pass. Nothing else reads what lies between.
struct MlpSegment {
  int64_t rows = 0;
  std::set<BufferId> hidden{};  // what lies between, with what recompute() makes of it again
  std::set<BufferId>
      gradients{};  // of it, and those of the inputs that nothing but a sum of the segment reads
  // Indices of instructions, ascending: those that make hidden values, the products that read them, and those of the
  // backward pass.
  std::vector<size_t> makers{}, readers{}, backward{};
};

// Returns the MLPs in the order of their first activation. No instruction is in two of them.
std::vector<MlpSegment> find_mlps(const Program& program);

}  // namespace dstrain
