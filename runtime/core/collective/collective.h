// The kinds of operation between ranks, in one table. The communicator, the plan and the reports read what they know
// about a kind there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dstrain {

// The kinds of operation. For a sliced kind the whole tensor is one equal slice per rank.
enum class Collective : int32_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  exchange_rows,  // an all_to_all of unequal parts
  broadcast,
  message,  // from the root to the other one of two ranks
  barrier,
  gather_values
};

// What there is to know about a kind.
struct CollectiveTraits {
  Collective kind{};
  std::string_view name{};
  bool has_tensor = true;
  bool adds = false;  // it adds over ranks
  // It adds, or it gives each rank the parts of the sum that this rank makes.
  bool makes_sums = false;
  bool copies = false;                                // the root's tensor goes to the other ranks
  bool sliced_source = false, sliced_result = false;  // it has a slice for, or of, each rank
  // How many times a ring would send the whole tensor: an all-reduce is a reduce-scatter and an all-gather. A copy passes
  // no ring: its sender sends it once.
  int ring_passes = 0;
};

inline constexpr std::array kCollectives{
    CollectiveTraits{.kind = Collective::all_reduce,
                     .name = "all_reduce",
                     .adds = true,
                     .makes_sums = true,
                     .ring_passes = 2},
    CollectiveTraits{.kind = Collective::reduce_scatter,
                     .name = "reduce_scatter",
                     .adds = true,
                     .makes_sums = true,
                     .sliced_source = true,
                     .ring_passes = 1},
    CollectiveTraits{.kind = Collective::all_gather,
                     .name = "all_gather",
                     .sliced_result = true,
                     .ring_passes = 1},
    CollectiveTraits{.kind = Collective::all_to_all,
                     .name = "all_to_all",
                     .makes_sums = true,
                     .sliced_source = true,
                     .sliced_result = true,
                     .ring_passes = 1},
    CollectiveTraits{.kind = Collective::exchange_rows,
                     .name = "exchange_rows",
                     .sliced_source = true,
                     .sliced_result = true,
                     .ring_passes = 1},
    CollectiveTraits{.kind = Collective::broadcast, .name = "broadcast", .copies = true},
    CollectiveTraits{.kind = Collective::message, .name = "message", .copies = true},
    CollectiveTraits{.kind = Collective::barrier, .name = "barrier", .has_tensor = false},
    CollectiveTraits{
        .kind = Collective::gather_values, .name = "gather_values", .has_tensor = false},
};

constexpr const CollectiveTraits& traits_of(Collective kind) {
  return kCollectives[static_cast<size_t>(kind)];
}
static_assert(std::ranges::all_of(kCollectives,
                                  [](const CollectiveTraits& traits) {
                                    return &traits_of(traits.kind) == &traits;
                                  }),
              "the table has the kinds in their order");
static_assert(kCollectives.back().kind == Collective::gather_values, "a kind has no row");

constexpr std::string_view name_of(Collective kind) {
  return traits_of(kind).name;
}
constexpr bool has_tensor(Collective kind) {
  return traits_of(kind).has_tensor;
}
constexpr bool is_sum(Collective kind) {
  return traits_of(kind).adds;
}
// Whether the root's tensor is copied to the other ranks.
constexpr bool is_copy(Collective kind) {
  return traits_of(kind).copies;
}
constexpr bool is_sliced(Collective kind) {
  return traits_of(kind).sliced_source || traits_of(kind).sliced_result;
}
// Whether each rank has something for each.
constexpr bool is_exchange(Collective kind) {
  return traits_of(kind).sliced_source && traits_of(kind).sliced_result;
}
// How many slices a rank's source and its result consist of.
constexpr int source_slices(Collective kind, int ranks) {
  return traits_of(kind).sliced_source ? ranks : 1;
}
constexpr int result_slices(Collective kind, int ranks) {
  return traits_of(kind).sliced_result ? ranks : 1;
}

// Payload bytes that one rank sends in a ring algorithm: 2(N-1)/N n for all_reduce, (N-1)/N n for
// reduce_scatter, all_gather and all_to_all, n for broadcast and for the sender of a message, where n is the whole in
// bytes; 0 where n is below 1 KiB.
constexpr int64_t ring_bytes(Collective kind, int64_t whole_bytes, int64_t ranks) {
  if (whole_bytes < 1024 || ranks < 2) return 0;
  if (is_copy(kind)) return whole_bytes;
  return traits_of(kind).ring_passes * whole_bytes * (ranks - 1) / ranks;
}

}  // namespace dstrain
