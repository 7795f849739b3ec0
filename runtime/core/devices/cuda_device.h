// GPUs. A build without CUDA has these functions too (no_cuda.cpp), so that callers need no #ifdef.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "runtime/core/devices/device.h"

namespace dstrain {

// Returns GPU `index` of this process. Throws UserError with the text of why_no_cuda() if there is none.
std::unique_ptr<Device> make_cuda_device(int index);

// Returns whether this build can plan for GPUs, even on a machine without one.
bool has_cuda_backend();
// Returns the number of GPUs that this process can use; 0 without CUDA or without a driver.
int cuda_device_count();
// Returns what no other GPU of any machine has (its UUID), as integers below 2^32. `device` must be a GPU.
std::array<double, 4> cuda_identity(const Device& device);
// Returns why there are no GPUs and what to do about it; an empty string if there are.
std::string why_no_cuda();

}  // namespace dstrain
