// Operation: one collective of a communicator, and the part of it that must be the same on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/core/dtype.h"

namespace dstrain {

// The kinds of operation. For a sliced kind the whole tensor is one equal slice per rank.
enum class Collective : int32_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  message,  // from the root to the other one of two ranks
  barrier,
  gather_values
};

std::string_view name_of(Collective kind);

inline bool has_tensor(Collective kind) {
  return kind != Collective::barrier && kind != Collective::gather_values;
}
inline bool is_sum(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::reduce_scatter;
}
// Whether the root's tensor is copied to the other ranks.
inline bool is_copy(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::message;
}
inline bool is_sliced(Collective kind) {
  return kind == Collective::reduce_scatter || kind == Collective::all_gather ||
         kind == Collective::all_to_all;
}
// How many slices a rank's source and its result consist of.
inline int source_slices(Collective kind, int ranks) {
  return kind == Collective::reduce_scatter || kind == Collective::all_to_all ? ranks : 1;
}
inline int result_slices(Collective kind, int ranks) {
  return kind == Collective::all_gather || kind == Collective::all_to_all ? ranks : 1;
}

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

// Payload bytes that one rank sends in a ring algorithm: 2(N-1)/N n for all_reduce, (N-1)/N n for
// reduce_scatter, all_gather and all_to_all, n for broadcast and for the sender of a message, where n is the whole in
// bytes; 0 where n is below 1 KiB.
int64_t ring_bytes(Collective kind, int64_t whole_bytes, int ranks);

// An operation with this rank's memory. Trivially copyable.
struct Operation {
  OpKey key;
  std::byte* in = nullptr;         // the source: source_slices() slices
  std::byte* out = nullptr;        // the result: result_slices() slices
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
