#include "runtime/engine/backend.h"

#include "kernels/cpu/cpu_library.h"

namespace dstrain {

std::unique_ptr<KernelLibrary> make_planning_library(const std::string&) {
  return make_cpu_library();
}

Backend make_backend(const std::string& device, int index) {
  Backend backend;
  backend.device = make_device(device, index);
  backend.device->attach_thread();
  backend.compute = backend.device->make_stream();
  backend.copies = backend.device->make_stream();
  backend.library = make_cpu_library();
  return backend;
}

}  // namespace dstrain
