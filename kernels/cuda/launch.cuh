// What every .cu file stands on: CUDA's execution model, whoever compiles the file. nvcc makes the kernels
// of namespace dstrain::cuda; a C++ compiler makes those of dstrain::emulated, which run on
// EmulatedStreams (kernels/cuda/emulation). A .cu file puts everything into `namespace
// dstrain::DSTRAIN_BACKEND`, and both may be linked into one program.
//
// Both sides have:
//   cudaStream_t            EmulatedStream* on the emulated side
//   Grid                    blocks, threads, bytes of dynamic shared memory
//   launch(stream, name, grid, kernel, arguments...)     `name` stands in messages
//   allow_shared(name, kernel, bytes)     once, before launches with more than 48 KiB
//   dynamic_shared<T>()     a block's dynamic shared memory, 16-byte aligned
//   store_whole(to, value)  *to = value in 16-byte accesses, for an aligned struct
//   widen(x), narrow<T>(x)  float from float, bf16 or f16 and back, rounded to nearest even
#pragma once

#include <memory>

#ifdef __CUDACC__
#include "kernels/cuda/device/launch.cuh"
#else
#include "kernels/cuda/emulation/launch.h"
#endif

namespace dstrain::DSTRAIN_BACKEND {

// What products share on a device (products/): null on the emulated one.
class ProductState;

// What the kernels of a library run in.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  std::shared_ptr<ProductState> products = nullptr;
  bool tf32 = false;  // f32 products may round their operands to TF32
};

}  // namespace dstrain::DSTRAIN_BACKEND
