// Implements kernels/cuda/attention/hopper/instructions.cuh for the emulated device.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/cuda/emulation/hopper/products.h"
#include "kernels/cuda/emulation/hopper/tensor_map.h"
#include "kernels/cuda/emulation/threads.h"

namespace dstrain::emulated {

using CUtensorMap = TensorMap;

inline bool has_hopper_instructions() {
  return true;
}

template <size_t kRank>
CUtensorMap make_tensor_map(const void* at, DType dtype, Swizzle swizzle,
                            const std::array<uint64_t, kRank>& sizes,
                            const std::array<uint64_t, kRank>& strides,
                            const std::array<uint32_t, kRank>& box) {
  CUtensorMap map;
  map.at = static_cast<const unsigned char*>(at);
  map.element_bytes = static_cast<uint32_t>(size_of(dtype));
  map.rank = kRank;
  std::copy_n(sizes.begin(), kRank, map.sizes.begin());
  std::copy_n(strides.begin(), kRank - 1, map.strides.begin());
  std::copy_n(box.begin(), kRank, map.box.begin());
  map.swizzle = swizzle;
  check_map(map);
  return map;
}

// --- the block's, which are called by its threads ------------------------------------------------

void init_shared_barrier(uint64_t* word, int arrivals, const SourceLine& place);
void arrive_at_barrier(uint64_t* word, uint32_t bytes, const SourceLine& place);
void wait_for_phase(uint64_t* word, int parity, const SourceLine& place);
void start_copy(void* to, const TensorMap& from, const std::array<int, kMostDimensions>& at,
                uint64_t* word, const SourceLine& place);
void begin_group();
void commit_group();
void wait_for_groups(unsigned pending, const SourceLine& place);
void issue_product_of_warp(const ProductShape& shape, ProductLane& lane, const SourceLine& place);
void take_sums_of_lane(float* sums, int tiles, const SourceLine& place);
uint32_t offset_in_shared(const void* at);
unsigned char* panel_memory();

// --- barriers and copies -------------------------------------------------------------------------

inline uint32_t shared_address(const void* at) {
  return offset_in_shared(at);
}
inline void barrier_init(uint64_t* word, int arrivals,
                         const SourceLine& place = {"barrier_init", __builtin_FILE(),
                                                    __builtin_LINE()}) {
  init_shared_barrier(word, arrivals, place);
}
inline void publish_barriers() {}
inline void barrier_arrive(uint64_t* word,
                           const SourceLine& place = {"barrier_arrive", __builtin_FILE(),
                                                      __builtin_LINE()}) {
  arrive_at_barrier(word, 0, place);
}
inline void barrier_arrive_expecting(uint64_t* word, uint32_t bytes,
                                     const SourceLine& place = {"barrier_arrive_expecting",
                                                                __builtin_FILE(),
                                                                __builtin_LINE()}) {
  arrive_at_barrier(word, bytes, place);
}
inline void barrier_wait(uint64_t* word, int parity,
                         const SourceLine& place = {"barrier_wait", __builtin_FILE(),
                                                    __builtin_LINE()}) {
  wait_for_phase(word, parity, place);
}
inline void copy_box(void* to, const CUtensorMap& from, const int (&at)[1], uint64_t* word,
                     const SourceLine& place = {"copy_box", __builtin_FILE(), __builtin_LINE()}) {
  start_copy(to, from, {at[0]}, word, place);
}
inline void copy_box(void* to, const CUtensorMap& from, const int (&at)[4], uint64_t* word,
                     const SourceLine& place = {"copy_box", __builtin_FILE(), __builtin_LINE()}) {
  start_copy(to, from, {at[0], at[1], at[2], at[3]}, word, place);
}

// --- products ------------------------------------------------------------------------------------

inline void begin_products() {
  begin_group();
}
inline void commit_products() {
  commit_group();
}
template <int kPending>
void wait_products(const SourceLine& place = {"wait_products", __builtin_FILE(),
                                              __builtin_LINE()}) {
  wait_for_groups(kPending, place);
}

// The sums of one instruction: m64n64k16.
inline constexpr int kSumTiles = 8;

template <int kTiles>
void finished(float (&sums)[kTiles][4],
              const SourceLine& place = {"finished", __builtin_FILE(), __builtin_LINE()}) {
  for (int from = 0; from < kTiles; from += kSumTiles)
    take_sums_of_lane(sums[from], kSumTiles, place);
}

template <class T>
constexpr DType kDTypeOf = std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;

template <class T, int kFrom = 0, int kTiles>
void wgmma(float (&sums)[kTiles][4], uint64_t a, uint64_t b, bool add,
           const SourceLine& place = {"wgmma", __builtin_FILE(), __builtin_LINE()}) {
  ProductLane lane{sums[kFrom], {}, a, b};
  issue_product_of_warp({.dtype = kDTypeOf<T>, .tiles = kSumTiles, .add = add}, lane, place);
}

template <class T, int kFrom = 0, int kTiles>
void wgmma(float (&sums)[kTiles][4], const uint32_t (&a)[4], uint64_t b,
           const SourceLine& place = {"wgmma", __builtin_FILE(), __builtin_LINE()}) {
  ProductLane lane{sums[kFrom], {a[0], a[1], a[2], a[3]}, 0, b};
  issue_product_of_warp({.dtype = kDTypeOf<T>,
                         .tiles = kSumTiles,
                         .add = true,
                         .a_in_registers = true,
                         .b_transposed = true},
                        lane, place);
}

}  // namespace dstrain::emulated
