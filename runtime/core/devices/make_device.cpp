#include "runtime/core/devices/make_device.h"

#include "runtime/core/devices/cpu_device.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/error.h"

namespace dstrain {

std::unique_ptr<Device> make_device(DeviceChoice device, int index) {
  check(device != DeviceChoice::automatic, "no device has been chosen");
  switch (kind_of(device)) {
    case DeviceKind::cuda:
      return make_cuda_device(index);
    case DeviceKind::emulated:
      return make_emulated_device();
    case DeviceKind::cpu:
      break;
  }
  return make_cpu_device();
}

}  // namespace dstrain
