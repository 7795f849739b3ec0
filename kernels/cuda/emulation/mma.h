// The functions of kernels/cuda/attention/mma.cuh on the emulated device, with the PTX ISA's layout of fragments.
// Sums are f32 over ascending depth; the hardware's order and precision within an instruction are not specified. A
// copy is complete when copy_async returns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cuda/emulation/grid.h"
#include "runtime/core/dtype.h"
#include "runtime/core/error.h"

namespace dstrain::emulated {

inline constexpr unsigned kWholeWarp = ~0u;

// The registers of one lane for mma, an instruction of the whole warp: operands a and b, and the sums c.
// ThreadSanitizer does not check the exchange, because registers are not shared memory (as in intrinsics.h).
struct MmaLane {
  float c[4];
  uint32_t a[4], b[2];
};
// The part of one lane in ldmatrix: it supplies a row of eight 16-bit elements, and gets four registers.
struct LdmatrixLane {
  uint32_t r[4];
  uint16_t row[8];
};

template <class T>
__attribute__((no_sanitize("thread"))) void mma_of_warp(unsigned, void* const* lanes) {
  float a[16][16], b[16][8];
  for (int l = 0; l < kWarp; ++l) {
    const auto& lane = *static_cast<const MmaLane*>(lanes[l]);
    const int g = l / 4, q = l % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i % 2 * 8, column = 2 * q + i / 2 * 8;
      a[row][column] = to_float(T{static_cast<uint16_t>(lane.a[i])});
      a[row][column + 1] = to_float(T{static_cast<uint16_t>(lane.a[i] >> 16)});
    }
    for (int i = 0; i < 2; ++i) {
      b[2 * q + i * 8][g] = to_float(T{static_cast<uint16_t>(lane.b[i])});
      b[2 * q + i * 8 + 1][g] = to_float(T{static_cast<uint16_t>(lane.b[i] >> 16)});
    }
  }
  for (int l = 0; l < kWarp; ++l) {
    auto& lane = *static_cast<MmaLane*>(lanes[l]);
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) lane.c[i] += a[row][k] * b[k][column];
    }
  }
}

template <class T>
void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MmaLane lane{{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  warp_collective(kWholeWarp, &lane, mma_of_warp<T>, false, {"mma", __FILE__, __LINE__});
  std::copy_n(lane.c, 4, c);
}

template <bool kTrans>
__attribute__((no_sanitize("thread"))) void ldmatrix_of_warp(unsigned, void* const* lanes) {
  for (int l = 0; l < kWarp; ++l) {
    for (int m = 0; m < 4; ++m) {
      uint32_t pair[2];
      for (int e = 0; e < 2; ++e) {
        const int row = kTrans ? l % 4 * 2 + e : l / 4, column = kTrans ? l / 4 : l % 4 * 2 + e;
        pair[e] = static_cast<const LdmatrixLane*>(lanes[m * 8 + row])->row[column];
      }
      static_cast<LdmatrixLane*>(lanes[l])->r[m] = pair[0] | pair[1] << 16;
    }
  }
}

// Throws InternalError for an address at which the hardware would fault.
inline void check_aligned(const char* what, const void* p) {
  check(reinterpret_cast<uintptr_t>(p) % 16 == 0, "{}: an address that is not a multiple of 16",
        what);
}

template <bool kTrans>
void load_matrices(uint32_t (&r)[4], const void* row, const SourceLine& place) {
  check_aligned(place.call, row);
  LdmatrixLane lane{};
  std::memcpy(lane.row, row, sizeof(lane.row));
  warp_collective(kWholeWarp, &lane, ldmatrix_of_warp<kTrans>, false, place);
  std::copy_n(lane.r, 4, r);
}
inline void ldmatrix(uint32_t (&r)[4], const void* row) {
  load_matrices<false>(r, row, {"ldmatrix", __FILE__, __LINE__});
}
inline void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
  load_matrices<true>(r, row, {"ldmatrix_trans", __FILE__, __LINE__});
}

inline void copy_async(void* to, const void* from, bool present) {
  check_aligned("cp.async", to);
  check_aligned("cp.async", from);
  if (present) {
    std::memcpy(to, from, 16);
  } else {
    std::memset(to, 0, 16);
  }
}
inline void wait_copies() {}

template <class T>
uint32_t pack(float low, float high) {
  return from_float<T>(low).bits | static_cast<uint32_t>(from_float<T>(high).bits) << 16;
}

}  // namespace dstrain::emulated
