#include "runtime/plan/implementations.h"

namespace dstrain {

std::unique_ptr<KernelLibrary> make_planning_library(const Implementations& implementations,
                                                     const std::string& device) {
  const DeviceKind kind = device == "cuda"       ? DeviceKind::cuda
                          : device == "emulated" ? DeviceKind::emulated
                                                 : DeviceKind::cpu;
  return implementations.make_library(kind, nullptr);
}

}  // namespace dstrain
