#include "runtime/engine/step/backend.h"

#include "runtime/core/devices/make_device.h"

namespace dstrain {

Backend make_backend(const Implementations& implementations, DeviceChoice device, int index) {
  Backend backend;
  backend.device = make_device(device, index);
  backend.device->attach_thread();
  backend.compute = backend.device->make_stream();
  backend.copies = backend.device->make_stream();
  backend.library = implementations.make_library(backend.device->kind(), backend.compute->native());
  backend.host_library = backend.device->is_host()
                             ? backend.library
                             : implementations.make_library(DeviceKind::cpu, nullptr);
  return backend;
}

}  // namespace dstrain
