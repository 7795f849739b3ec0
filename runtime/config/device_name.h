// The names of devices.
#pragma once

#include <string>

namespace dstrain {

// Throws UserError if there is no device of that name.
void check_device_name(const std::string& device);

}  // namespace dstrain
