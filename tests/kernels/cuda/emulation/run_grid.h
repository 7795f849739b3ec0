// Runs a kernel on a stream of its own.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace dstrain::emulated {

// Returns when the grid has run. Throws what it throws.
template <class... P, class... A>
void run(const char* name, const Grid& grid, void (*kernel)(P...), A... a) {
  EmulatedStream stream;
  launch(&stream, name, grid, kernel, a...);
  stream.synchronize();
}

}  // namespace dstrain::emulated
