// The kernels of every device that dstrain runs on.
#pragma once

#include <memory>

#include "runtime/core/devices/device.h"
#include "runtime/ir/kernel.h"

namespace dstrain {

// Returns the kernels of `device`, which run on `stream` (Stream::native(); the caller keeps it alive). A
// library with a null stream answers questions about sizes, its kernels must not run. Throws UserError for
// cuda in a build without CUDA.
std::unique_ptr<KernelLibrary> make_kernel_library(DeviceKind device, void* stream);

}  // namespace dstrain
