#include "runtime/engine/step/backend.h"

#include "kernels/cpu/cpu_library.h"
#include "kernels/cuda/library.h"
#include "runtime/core/devices/emulated_stream.h"

namespace dstrain {
namespace {

std::unique_ptr<KernelLibrary> library_on(DeviceKind device, void* stream) {
  switch (device) {
    case DeviceKind::emulated:
      return make_emulated_library(*static_cast<EmulatedStream*>(stream));
    case DeviceKind::cuda:
      return make_cuda_library(static_cast<CUstream_st*>(stream));
    case DeviceKind::cpu:
      break;
  }
  return make_cpu_library();
}

// Kernels of a device and the stream that they would run on.
class PlanningLibrary final : public KernelLibrary {
 public:
  PlanningLibrary() : library_(make_emulated_library(stream_)) {}
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return library_->workspace_bytes(spec);
  }
  int64_t packed_bytes(const KernelSpec& spec) const override {
    return library_->packed_bytes(spec);
  }
  bool fuses(const KernelSpec& spec) const override { return library_->fuses(spec); }
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override {
    return library_->make(spec);
  }
  std::string description() const override { return library_->description(); }

 private:
  EmulatedStream stream_;
  std::unique_ptr<KernelLibrary> library_;
};

}  // namespace

std::unique_ptr<KernelLibrary> make_planning_library(const std::string& device) {
  if (device == "emulated") return std::make_unique<PlanningLibrary>();
  return library_on(device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu, nullptr);
}

Backend make_backend(const std::string& device, int index) {
  Backend backend;
  backend.device = make_device(device, index);
  backend.device->attach_thread();
  backend.compute = backend.device->make_stream();
  backend.copies = backend.device->make_stream();
  backend.library = library_on(backend.device->kind(), backend.compute->native());
  return backend;
}

}  // namespace dstrain
