#include "runtime/core/devices/make_device.h"

#include "runtime/core/devices/cpu_device.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/error.h"

namespace dstrain {

std::unique_ptr<Device> make_device(const std::string& setting, int index) {
  if (setting == "cuda") return make_cuda_device(index);
  if (setting == "emulated") return make_emulated_device();
  check(setting == "cpu", "'{}' names no device", setting);
  return make_cpu_device();
}

}  // namespace dstrain
