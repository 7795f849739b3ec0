// Tensor memory copies into shared memory, the barriers that they complete on, and the ring of stages that tiles pass.
#pragma once

#include "kernels/cuda/attention/hopper/wgmma.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// A barrier in shared memory. Its phases have numbers from 0; a phase ends when `arrivals` threads have arrived and the
// bytes that they announced are there.
struct Barrier {
  uint64_t word;

  __device__ void init(int arrivals) { barrier_init(&word, arrivals); }
  __device__ __forceinline__ void arrive() { barrier_arrive(&word); }
  // Arrives, and announces bytes that copies will write.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) {
    barrier_arrive_expecting(&word, bytes);
  }
  // Returns when the phase has ended. No later one may end before all threads have returned.
  __device__ __forceinline__ void wait(int phase) { barrier_wait(&word, phase & 1); }
};

// Copies panels with this first row of a head to shared memory; rows past T are zeros.
template <int kPanels, class T>
__device__ __forceinline__ void copy_panels(T* to, const CUtensorMap& from, int row, int head,
                                            int sample, Barrier& barrier) {
#pragma unroll
  for (int p = 0; p < kPanels; ++p)
    copy_box(to + p * kPanelSize, from, {64 * p, row, head, sample}, &barrier.word);
}

// The statistics of 64 rows: copies begin at a multiple of 4, up to 3 before the first, and at multiples of 128 bytes in
// shared memory.
inline constexpr int kStatisticsBox = kPanelRows + 4, kStatisticsStep = 96;

// Copies kStatisticsBox floats from element `first` on, a multiple of 4; those past the end are zeros.
__device__ __forceinline__ void copy_floats(float* to, const CUtensorMap& from, int first,
                                            Barrier& barrier) {
  copy_box(to, from, {first}, &barrier.word);
}

// Tiles with numbers from 0 pass kStages stages of shared memory in turn. The block's first thread fills a stage again
// kLag tiles after it was read, so that it seldom waits for other warpgroups.
template <int kStages>
struct Ring {
  static constexpr int kLag = kStages / 2;

  Barrier filled[kStages], read[kStages];

  // readers: warps that call mark_read for every tile.
  __device__ void init(int readers) {
    for (int s = 0; s < kStages; ++s) {
      filled[s].init(1);
      read[s].init(readers);
    }
  }
  __device__ __forceinline__ static int stage(int tile) { return tile % kStages; }
  __device__ __forceinline__ void wait_filled(int tile) {
    filled[stage(tile)].wait(tile / kStages);
  }
  // Called by every thread of a warp whose products with the tile are done.
  __device__ __forceinline__ void mark_read(int tile) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) read[stage(tile)].arrive();
  }

  // Marks tiles [begin, end) as read without a look at them. None may be marked before it is there: the readers of the tile
  // before in its stage may not have marked that one.
  __device__ __forceinline__ void skip(int begin, int end) {
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile) {
      wait_filled(tile);
      mark_read(tile);
    }
  }

  // fill(tile) copies a tile, completing on its filled barrier. The first thread calls start() once, and the warps of
  // its group advance() before each of their tiles.
  template <class F>
  __device__ __forceinline__ void start(int tiles, const F& fill) {
#pragma unroll 1
    for (int tile = 0; tile < kStages && tile < tiles; ++tile) fill(tile);
  }
  template <class F>
  __device__ __forceinline__ void advance(int tile, int tiles, const F& fill) {
    const int free = tile - kLag;
    if (threadIdx.x == 0 && free >= 0 && free + kStages < tiles) {
      read[stage(free)].wait(free / kStages);
      fill(free + kStages);
    }
    __syncwarp();
  }
};

}  // namespace dstrain::DSTRAIN_BACKEND
