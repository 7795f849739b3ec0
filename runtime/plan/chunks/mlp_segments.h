// The MLPs of a program, found by their operations alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "runtime/ir/program.h"

namespace dstrain {

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
