// Backend: a rank's device with its streams and kernels: everything that differs between running on a
// CPU and on a GPU is made here, and nobody above asks again.
#pragma once

#include <memory>
#include <string>

#include "runtime/core/devices/device.h"
#include "runtime/ir/kernel.h"

namespace dstrain {

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> compute;  // kernels run on it, in the order of the plan
  std::unique_ptr<Stream> copies;   // brings batches
  std::unique_ptr<KernelLibrary> library;
};

// The backend of a settled device (cpu, cuda, emulated); `index`: which of this process's GPUs.
Backend make_backend(const std::string& device, int index = 0);

// The kernels of a device for plans alone: asked for sizes, never run; needs no GPU.
std::unique_ptr<KernelLibrary> make_planning_library(const std::string& device);

}  // namespace dstrain
