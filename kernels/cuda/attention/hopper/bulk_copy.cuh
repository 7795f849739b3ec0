// Tensor memory copies into shared memory, the barriers that they complete on, and the ring of stages that tiles pass.
#pragma once

#include <cuda.h>

#include "kernels/cuda/attention/hopper/wgmma.cuh"

namespace dstrain::cuda {

// A barrier in shared memory. Its phases have numbers from 0; a phase ends when `arrivals` threads have arrived and the
// bytes that they announced are there.
struct Barrier {
  uint64_t word;

  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(this)),
                 "r"(arrivals)
                 : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(this))
                 : "memory");
  }
  // Arrives, and announces bytes that copies will write.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(this)),
        "r"(bytes)
        : "memory");
  }
  // Returns when the phase has ended. No later one may end before all threads have returned.
  __device__ __forceinline__ void wait(int phase) {
    uint32_t done;
    do {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}\n"
          : "=r"(done)
          : "r"(shared_address(this)), "r"(phase & 1)
          : "memory");
    } while (done == 0);
  }
};

// Makes initialised barriers visible to copies. The block's threads must meet after it.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// Copies the panel with this first column and row of a head to shared memory; rows past T are zeros.
__device__ __forceinline__ void copy_panel(bf16* to, const CUtensorMap& from, int column, int row,
                                           int head, int sample, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];\n" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&from)), "r"(column), "r"(row), "r"(head), "r"(sample),
      "r"(shared_address(&barrier))
      : "memory");
}
template <int kPanels>
__device__ __forceinline__ void copy_panels(bf16* to, const CUtensorMap& from, int row, int head,
                                            int sample, Barrier& barrier) {
#pragma unroll
  for (int p = 0; p < kPanels; ++p)
    copy_panel(to + p * kPanelSize, from, 64 * p, row, head, sample, barrier);
}

// Copies 64 floats from element `first` on, a multiple of 4; those past the end are zeros.
__device__ __forceinline__ void copy_floats(float* to, const CUtensorMap& from, int first,
                                            Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2}], [%3];\n" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&from)), "r"(first), "r"(shared_address(&barrier))
      : "memory");
}

// The dynamic shared memory of a block, at a multiple of 1024 bytes as panels need it.
__device__ __forceinline__ bf16* panel_memory() {
  extern __shared__ __align__(1024) unsigned char dst_panel_memory[];
  return reinterpret_cast<bf16*>(dst_panel_memory);
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

}  // namespace dstrain::cuda
