// Implements kernels/cuda/launch.cuh for the emulated device.
#pragma once

#include "kernels/cuda/emulation/grid.h"
#include "kernels/cuda/emulation/intrinsics.h"
#include "runtime/core/devices/emulated_stream.h"
#include "runtime/core/dtype.h"
#include "runtime/core/error.h"

#define DSTRAIN_BACKEND emulated

namespace dstrain::emulated {

using cudaStream_t = EmulatedStream*;  // NOLINT(readability-identifier-naming): CUDA's name

inline constexpr char kBackendName[] = "emulated";

// The configuration of a launch: numbers of blocks and of threads in a block, and bytes of dynamic shared memory of
// a block.
struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;
};

template <class... P, class... A>
void launch(cudaStream_t stream, const char* name, const Grid& grid, void (*kernel)(P...), A... a) {
  stream->submit([shape = GridShape{name, grid.blocks, grid.threads, grid.shared}, kernel, a...] {
    run_grid(shape, [&] { kernel(static_cast<P>(a)...); });
  });
}

template <class... P>
void allow_shared(const char* name, void (*)(P...), size_t bytes) {
  check(bytes <= kMostBlockShared,
        "kernel {} wants {} bytes of shared memory a block; a GPU has {}", name, bytes,
        kMostBlockShared);
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_memory());
}

template <class P>
void store_whole(P* to, const P& value) {
  *to = value;
}

inline uint4 load_words(const void* from, bool present = true) {
  check(reinterpret_cast<uintptr_t>(from) % 16 == 0 || !present,
        "a load of 16 bytes from an address that is not a multiple of 16");
  uint4 words{};
  if (present) std::memcpy(&words, from, sizeof(words));
  return words;
}

inline float exp2_of(float x) {
  return x < -126 ? 0 : std::exp2(x);
}

template <class T>
T narrow(float x) {
  return from_float<T>(x);
}
inline float widen(float x) {
  return x;
}
inline float widen(bf16 x) {
  return to_float(x);
}
inline float widen(f16 x) {
  return to_float(x);
}

}  // namespace dstrain::emulated
