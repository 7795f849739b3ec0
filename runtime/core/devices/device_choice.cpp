#include "runtime/core/devices/device_choice.h"

#include <array>

#include "runtime/core/devices/device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::array<std::string_view, 4> kNames{"auto", "cpu", "cuda", "emulated"};

}  // namespace

std::string_view name_of(DeviceChoice device) {
  return kNames[static_cast<size_t>(device)];
}

DeviceChoice device_named(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return DeviceChoice(i);
  fail_user("--device {}: expected auto, cpu or cuda (or emulated, a device for tests)", name);
}

DeviceKind kind_of(DeviceChoice device) {
  switch (device) {
    case DeviceChoice::cuda:
      return DeviceKind::cuda;
    case DeviceChoice::emulated:
      return DeviceKind::emulated;
    case DeviceChoice::automatic:
    case DeviceChoice::cpu:
      break;
  }
  return DeviceKind::cpu;
}

bool is_gpu(DeviceChoice device) {
  return device == DeviceChoice::cuda;
}

bool takes_gpu(DeviceChoice device) {
  return is_gpu(device) || device == DeviceChoice::automatic;
}

}  // namespace dstrain
