// Runs a CUDA grid on two host threads: the threads of a block are fibers of one of them, a barrier is a
// switch between fibers. Threads and blocks start in an order that changes with every launch (seeded by
// the number of launches so far), so that results which depend on an order differ from run to run.
//
// ThreadSanitizer sees every CUDA thread as a thread, and two threads of a block as ordered only where a
// barrier orders them; so it reports a missing barrier although they run in sequence. Shuffles and
// votes exchange values and order nothing, as on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/emulation/types.h"

namespace dstrain::emulated {

inline constexpr int kWarp = 32;
inline constexpr unsigned kMostBlockThreads = 1024;     // of a block
inline constexpr size_t kMostBlockShared = 227 * 1024;  // bytes of a block

struct GridShape {
  const char* kernel;  // its name, for messages
  dim3 blocks, threads;
  size_t shared = 0;  // bytes of dynamic shared memory
};

// Calls `body` once for each thread of the grid, with threadIdx and blockIdx set. Throws InternalError
// naming the kernel where threads of a block wait for others that never come, and passes on what
// `body` throws.
void run_grid(const GridShape& shape, const std::function<void()>& body);

// A place in a kernel's source, for messages.
struct Place {
  const char* call;
  const char* file;
  int line;
};

// The rest is called by a CUDA thread, under run_grid.

// Returns when every thread of the block has called it from this place.
void block_barrier(const Place& place);

// Returns when all lanes of `mask` (lanes that the block does not have do not count) have called it from
// this place. One of them then calls combine(lanes, payloads): payloads[k] is lane k's, null for lanes that
// do not take part. `orders`: memory accesses before are ordered before those after.
using Combine = void (*)(unsigned lanes, void* const* payloads);
void warp_collective(unsigned mask, void* payload, Combine combine, bool orders,
                     const Place& place);

// This block's dynamic shared memory: bytes of 0xff at the block's start.
void* dynamic_shared_memory();

// NOLINTBEGIN(readability-identifier-naming): CUDA's names, set before a thread runs
extern thread_local constinit dim3 threadIdx, blockIdx, blockDim, gridDim;
// NOLINTEND(readability-identifier-naming)

}  // namespace dstrain::emulated
