#include "runtime/core/devices/cuda_facts.h"

#include <cuda_runtime.h>

#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Returns an attribute of a device, or of two, that `ask` writes to its argument.
template <class Ask>
int number_from_cuda(const char* what, const Ask& ask) {
  int value = 0;
  if (const cudaError_t code = ask(&value); code != cudaSuccess)
    fail_run("CUDA: asking for {} failed: {}", what, ::cudaGetErrorString(code));
  return value;
}

GpuFacts gpu_facts(int gpu, int gpus) {
  const auto attribute = [gpu](const char* what, cudaDeviceAttr of) {
    return number_from_cuda(what,
                            [&](int* value) { return ::cudaDeviceGetAttribute(value, of, gpu); });
  };
  const std::unique_ptr<Device> device = make_cuda_device(gpu);
  GpuFacts facts{.name = device->name(), .memory = device->memory()};
  facts.capability = 10 * attribute("a GPU's capability", cudaDevAttrComputeCapabilityMajor) +
                     attribute("a GPU's capability", cudaDevAttrComputeCapabilityMinor);
  for (int peer = 0; peer < gpus; ++peer) {
    if (peer == gpu || number_from_cuda("access between GPUs", [&](int* value) {
                         return ::cudaDeviceCanAccessPeer(value, gpu, peer);
                       }) == 0)
      continue;
    facts.peers.push_back(peer);
    const int atomic = number_from_cuda("links between GPUs", [&](int* value) {
      return ::cudaDeviceGetP2PAttribute(value, cudaDevP2PAttrNativeAtomicSupported, gpu, peer);
    });
    facts.atomic_links = facts.atomic_links && atomic != 0;
  }
  return facts;
}

}  // namespace

CudaFacts cuda_facts() {
  CudaFacts facts{.architectures = DSTRAIN_CUDA_ARCHITECTURES};
  // Where there is no driver these fail or give 0.
  if (::cudaRuntimeGetVersion(&facts.runtime) != cudaSuccess) facts.runtime = 0;
  if (::cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
  const int gpus = cuda_device_count();
  for (int gpu = 0; gpu < gpus; ++gpu) facts.gpus.push_back(gpu_facts(gpu, gpus));
  return facts;
}

}  // namespace dstrain
