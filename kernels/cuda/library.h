// The kernel libraries of NVIDIA GPUs and of the emulated device. The same sources (*.cu) are compiled by nvcc for
// GPUs and by a C++ compiler for the emulated device; see launch.cuh.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

struct CUstream_st;  // a cudaStream_t points to it

namespace dstrain {

class EmulatedStream;

namespace cuda {
std::unique_ptr<KernelLibrary> make_library(CUstream_st* stream, bool hopper = true);
}
namespace emulated {
std::unique_ptr<KernelLibrary> make_library(EmulatedStream* stream, bool hopper = false);
}

// Returns a library whose kernels are enqueued on `stream`, in order. The stream must outlive the library and its
// kernels. Operands, workspace and step state must be memory that the stream's device can access. Throws
// UserError in a build without CUDA.
inline std::unique_ptr<KernelLibrary> make_cuda_library(CUstream_st* stream) {
  return cuda::make_library(stream);
}

// Returns the library of the emulated device, whose kernels run on the CPU. If a kernel throws, the stream's next
// synchronize() throws the same. hopper: with the kernels that use instructions of Hopper GPUs.
inline std::unique_ptr<KernelLibrary> make_emulated_library(EmulatedStream& stream,
                                                            bool hopper = false) {
  return emulated::make_library(&stream, hopper);
}

}  // namespace dstrain
