// The CPU as a device: the host's memory, and streams that do their work at once.
#pragma once

#include <memory>

#include "runtime/core/devices/device.h"

namespace dstrain {

std::unique_ptr<Device> make_cpu_device();

}  // namespace dstrain
