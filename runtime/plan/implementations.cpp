#include "runtime/plan/implementations.h"

namespace dstrain {

std::unique_ptr<KernelLibrary> make_planning_library(const Implementations& implementations,
                                                     DeviceKind kind) {
  return implementations.make_library(kind, nullptr);
}

}  // namespace dstrain
