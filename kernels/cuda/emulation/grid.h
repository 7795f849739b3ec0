// Runs a CUDA grid on two host threads. The CUDA threads of a block are fibers of one host thread, and a barrier
// switches between fibers. Threads and blocks start in an order that changes with every launch (seeded by the number
// of launches so far), so results that depend on the order differ from launch to launch.
//
// For ThreadSanitizer every CUDA thread is a thread, and only barriers order the threads of a block. So it reports a
// missing barrier although the fibers run one after the other. Shuffles and votes exchange values but order
// nothing, as on a GPU.
#pragma once

#include <functional>

#include "kernels/cuda/emulation/threads.h"

namespace dstrain::emulated {

// Seeds a fault into the grids that streams run whose host thread is the calling one, until it is called again.
void seed_fault(Fault fault);

// Calls `body` once for each thread of the grid, with threadIdx and blockIdx set. Throws InternalError with the
// kernel's name if threads of a block wait at a barrier that the others never reach. Throws what `body` throws.
void run_grid(const GridShape& shape, const std::function<void()>& body);

// The functions below must be called by a CUDA thread, that is within run_grid.

// A barrier: returns when every thread of the block has called it from this place.
void block_barrier(const SourceLine& place);

// A barrier of a part of the block: returns when `threads` threads have called it with this id, 1 to 15.
void group_barrier(int id, int threads, const SourceLine& place);

// A barrier of a warp: returns when all lanes of `mask` that the block has have called it from this place. One of
// them then calls combine(lanes, payloads); payloads[k] is lane k's payload, null for lanes outside `mask`. With
// `orders`, memory accesses before the call are ordered before those after it.
void warp_collective(unsigned mask, void* payload, Combine combine, bool orders,
                     const SourceLine& place);

// Returns this block's dynamic shared memory, which is filled with 0xff when the block starts.
void* dynamic_shared_memory();

}  // namespace dstrain::emulated
