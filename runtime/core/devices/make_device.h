// The factory of devices.
#pragma once

#include <memory>

#include "runtime/core/devices/device.h"
#include "runtime/core/devices/device_choice.h"

namespace dstrain {

// Returns the device that was chosen; `index` is the GPU's. Throws UserError if
// there is no such GPU.
std::unique_ptr<Device> make_device(DeviceChoice device, int index);

}  // namespace dstrain
