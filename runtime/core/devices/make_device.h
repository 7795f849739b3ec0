// The factory of devices by name.
#pragma once

#include <memory>
#include <string>

#include "runtime/core/devices/device.h"

namespace dstrain {

// Returns the device that `setting` names (cpu, emulated, cuda); `index` is the GPU's. Throws UserError if
// there is no such GPU.
std::unique_ptr<Device> make_device(const std::string& setting, int index);

}  // namespace dstrain
