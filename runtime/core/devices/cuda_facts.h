// What CUDA tells about GPUs and their driver, for reports. A build without CUDA has the function too (no_cuda.cpp).
#pragma once

#include <string>
#include <vector>

#include "runtime/core/devices/device.h"

namespace dstrain {

// A GPU of this process.
struct GpuFacts {
  std::string name;
  DeviceBytes memory;
  int capability = 0;        // the compute capability times 10: 90 is 9.0
  std::vector<int> peers{};  // the GPUs whose memory it reaches directly
  bool atomic_links = true;  // so that atomic operations reach the peers too, as over NVLink
};

// The GPUs, and the versions of CUDA that meet on them.
struct CudaFacts {
  std::string architectures;  // for which kernels are compiled, as CMake has them: "80-real,90"
  int runtime = 0,
      driver =
          0;  // versions of CUDA, this program's and the driver's newest: 12040 is 12.4; 0: none
  std::vector<GpuFacts> gpus{};  // those that this process can use
};

// Takes the memory of a context on each GPU until the process ends. Throws RunError if a GPU cannot be asked.
CudaFacts cuda_facts();

}  // namespace dstrain
