// Backend: a rank's device with its streams and kernels. Everything that differs between running on a CPU
// and on a GPU is chosen here; the code above has one path for all devices.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/devices/stream_transport.h"
#include "runtime/core/devices/device.h"
#include "runtime/core/devices/device_choice.h"
#include "runtime/plan/implementations.h"

namespace dstrain {

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> compute;  // runs the kernels, in the order of the plan
  std::unique_ptr<Stream> copies;   // copies batches to the device
  std::shared_ptr<const KernelLibrary> library;
  std::shared_ptr<const KernelLibrary> host_library;  // the CPU's kernels, on any device
  ConnectTransport
      connect{};  // how tensors travel between devices; empty: make_device_communicator() chooses
};

// Returns the backend of a settled device (cpu, cuda, emulated). `index`: which of this process's GPUs.
Backend make_backend(const Implementations& implementations, DeviceChoice device, int index = 0);

}  // namespace dstrain
