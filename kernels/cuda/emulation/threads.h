// What the CUDA threads of an emulated grid have: limits, names, places in the source.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/emulation/types.h"

namespace dstrain::emulated {

inline constexpr int kWarp = 32;
inline constexpr unsigned kMostBlockThreads = 1024;
inline constexpr int kBarriers = 16;                    // of a block
inline constexpr size_t kMostBlockShared = 227 * 1024;  // bytes

// A grid to be run: the name of its kernel, its blocks, the threads of a block, and their shared memory.
struct GridShape {
  const char* kernel;  // its name, for messages
  dim3 blocks, threads;
  size_t shared = 0;  // bytes of dynamic shared memory
};

// What a block's threads leave out or do wrong, for tests that must find it.
enum class Fault : uint8_t {
  none,
  no_block_barrier,      // threads do not wait at barriers of the block
  no_group_barrier,      // nor at those of a part of it
  no_arrival,            // no thread arrives at a barrier in shared memory, but to announce bytes
  no_wait_for_readers,   // threads do not wait for barriers to which no bytes are announced
  no_wait_for_copies,    // nor for those to which some are
  fewer_bytes,           // 16 bytes less than copies write are announced
  more_bytes,            // 16 bytes more
  wrong_swizzle,         // copies exchange other chunks than their maps state
  no_wait_for_products,  // threads do not wait for products of warpgroups
};

// A place in a kernel's source, for messages.
struct SourceLine {
  const char* call;
  const char* file;
  int line;
};

// Combines what the lanes of a warp pass to each other: payloads[k] is lane k's, null for lanes that take no part.
using Combine = void (*)(unsigned lanes, void* const* payloads);

// NOLINTBEGIN(readability-identifier-naming): CUDA's names, set before a thread runs
extern thread_local constinit dim3 threadIdx, blockIdx, blockDim, gridDim;
// NOLINTEND(readability-identifier-naming)

}  // namespace dstrain::emulated
