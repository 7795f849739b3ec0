#include "runtime/config/device_name.h"

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {

void check_device_name(const std::string& device) {
  if (!one_of("auto|cpu|cuda|emulated", device))
    fail_user("--device {}: expected auto, cpu or cuda (or emulated, a device for tests)", device);
}

}  // namespace dstrain
