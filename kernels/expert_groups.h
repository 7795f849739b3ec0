// The groups of rows of a rank's experts when those of all ranks have come (runtime/ir/ops/experts/exchange.h): the same on every
// device.
#pragma once

#include <cstdint>

#include "runtime/ir/op.h"

namespace dstrain {

struct ExpertGroups {
  const int32_t* all_ends =
      nullptr;  // i32 (ranks, experts): of each rank, where its rows for each expert end
  int64_t ranks = 1, rank = 0, experts = 0;

  // Returns how many rows of rank `from` are in front of those for the experts of rank `to`.
  constexpr int32_t begin(int64_t from, int64_t to) const {
    return to > 0 ? all_ends[from * experts + to * (experts / ranks) - 1] : 0;
  }
  // Returns how many rows rank `from` has for the experts of rank `to`.
  constexpr int32_t count(int64_t from, int64_t to) const {
    return begin(from, to + 1) - begin(from, to);
  }
  // Returns where a group of this rank's ends: its number is that of the rank that it comes from, and then of the expert.
  constexpr int32_t end(int64_t group) const {
    const int64_t own = experts / ranks, from = group / own;
    int32_t before = 0;
    for (int64_t r = 0; r < from; ++r) before += count(r, rank);
    return before + all_ends[from * experts + rank * own + group % own] - begin(from, rank);
  }
};

}  // namespace dstrain
