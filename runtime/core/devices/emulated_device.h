// The emulated device of tests: memory of its own, and streams that are threads.
#pragma once

#include <memory>

#include "runtime/core/devices/device.h"

namespace dstrain {

std::unique_ptr<Device> make_emulated_device();

}  // namespace dstrain
