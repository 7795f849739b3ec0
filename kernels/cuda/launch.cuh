// The interface to CUDA's execution model for every .cu file. Each file is compiled twice: by nvcc for GPUs
// (namespace dstrain::cuda, kernels/cuda/device) and by a C++ compiler for EmulatedStreams (namespace
// dstrain::emulated, kernels/cuda/emulation). A .cu file puts everything into `namespace
// dstrain::DSTRAIN_BACKEND`, so that one program can link both.
//
// Both provide:
//   cudaStream_t            EmulatedStream* on the emulated device
//   Grid                    blocks, threads, bytes of dynamic shared memory
//   launch(stream, name, grid, kernel, arguments...)     `name` appears in error messages
//   allow_shared(name, kernel, bytes)     call once before launches with more than 48 KiB of shared memory
//   dynamic_shared<T>()     a block's dynamic shared memory, 16-byte aligned
//   sync_group(id, threads) a barrier of so many threads of a block, whole warps; id: 1 to 15, another for each group
//   store_whole(to, value)  *to = value in 16-byte accesses, for an aligned struct
//   load_words(from, present)     16 aligned bytes, or zeros unless `present`; all such loads are issued in order
//   load_words(from)        the same, always present
//   exp2_of(x)              2^x with a relative error of 2^-22; 0 for -infinity and where the result is denormal
//   widen(x), narrow<T>(x)  conversion of float, bf16 or f16 to float and back, rounded to nearest even
#pragma once

#include <memory>

#ifdef __CUDACC__
#include "kernels/cuda/device/launch.cuh"
#else
#include "kernels/cuda/emulation/launch.h"
#endif

namespace dstrain::DSTRAIN_BACKEND {

// The state that a GPU's products share (products/); null on the emulated device.
class ProductState;

// What the kernels of a library need to run: their stream, and the state that products share.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  std::shared_ptr<ProductState> products = nullptr;
  bool hopper = false;  // kernels for Hopper run where the device has its instructions
  bool tf32 = false;    // f32 products may round their operands to TF32
};

}  // namespace dstrain::DSTRAIN_BACKEND
