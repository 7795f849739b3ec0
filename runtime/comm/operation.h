// Operation: one collective of a communicator, and the part of it that must be the same on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/comm/row_counts.h"
#include "runtime/core/collective/collective.h"
#include "runtime/core/dtype.h"

namespace dstrain {

// Identifies an operation: its place in the order, its kind and its size. It must be the same on every rank.
struct OpKey {
  int64_t sequence = 0;  // place in the communicator's start order, from 1
  Collective kind = Collective::barrier;
  DType dtype = DType::f64;
  int32_t root = 0;
  int64_t elements = 0;  // of one slice where the kind is sliced, else of the whole

  bool operator==(const OpKey&) const = default;
};

// "all_reduce #12 (4096 bytes of f32)"
std::string to_string(const OpKey& key);

// An operation with this rank's memory. Trivially copyable.
struct Operation {
  OpKey key;
  std::byte* in = nullptr;         // the source: source_slices() slices
  std::byte* out = nullptr;        // the result: result_slices() slices
  RowCounts rows{};                // exchange_rows: `elements` of the key are the most of two ranks
  std::span<const double> values;  // gather_values: this rank's
  std::span<double> all_values;    // gather_values: of all ranks, by rank
};

// The largest `values` of a rank.
inline constexpr int64_t kMaxValueBytes = 1024;

// Why a group of ranks stopped.
struct Abort {
  int rank = 0;  // the first rank that asked for it
  std::string reason;
};

}  // namespace dstrain
