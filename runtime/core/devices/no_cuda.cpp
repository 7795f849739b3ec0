// The functions of cuda_device.h and cuda_facts.h in a build without CUDA.
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/devices/cuda_facts.h"
#include "runtime/core/error.h"

namespace dstrain {

std::unique_ptr<Device> make_cuda_device(int) {
  throw UserError(why_no_cuda());
}

bool has_cuda_backend() {
  return false;
}

int cuda_device_count() {
  return 0;
}

std::array<double, 4> cuda_identity(const Device&) {
  throw InternalError("this build has no GPUs");
}

CudaFacts cuda_facts() {
  return {};
}

std::string why_no_cuda() {
  return "--device cuda: this dstrain was built without CUDA; build it where the CUDA toolkit is "
         "(cmake --preset cuda), or use --device cpu";
}

}  // namespace dstrain
