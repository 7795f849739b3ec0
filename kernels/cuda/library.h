// The kernels of NVIDIA GPUs, and the same kernels on the emulated device. One set of sources (*.cu)
// is compiled twice, by nvcc into dstrain::cuda and by a C++ compiler into dstrain::emulated; see launch.cuh.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

struct CUstream_st;  // a cudaStream_t points to it

namespace dstrain {

class EmulatedStream;

namespace cuda {
std::unique_ptr<KernelLibrary> make_library(CUstream_st* stream);
}
namespace emulated {
std::unique_ptr<KernelLibrary> make_library(EmulatedStream* stream);
}

// A library whose kernels are enqueued on `stream` (which outlives it and them), in order; operands,
// workspace and step state are memory that the stream's device may access. Throws UserError in a build
// without CUDA.
inline std::unique_ptr<KernelLibrary> make_cuda_library(CUstream_st* stream) {
  return cuda::make_library(stream);
}

// The same bodies, run by the processor. What a kernel throws the stream's next synchronize() throws.
inline std::unique_ptr<KernelLibrary> make_emulated_library(EmulatedStream& stream) {
  return emulated::make_library(&stream);
}

}  // namespace dstrain
