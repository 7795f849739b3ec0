// Implementations: the kernels that a program is built with. runtime includes none: the launcher passes its
// Implementations to every plan and every run. The models come with the configuration (config/keys/table/model_registry.h).
#pragma once

#include <memory>
#include <string>

#include "runtime/config/job.h"
#include "runtime/core/devices/device.h"
#include "runtime/core/philox.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/ir/kernel.h"

namespace dstrain {

struct Implementations {
  // Returns the kernels of a device. They run on `stream` (Stream::native(); the caller keeps it alive);
  // null: they are only planned with, never made. Throws UserError if this build lacks them.
  using MakeLibrary = std::unique_ptr<KernelLibrary> (*)(DeviceKind device, void* stream);
  // Writes elements begin .. begin + count - 1 of a distribution to out[0 .. count). Element i is a pure
  // function of (key, i), the same for every number of threads. out: host memory.
  using FillWeights = void (*)(float* out, int64_t begin, int64_t count, float scale, PhiloxKey key,
                               int threads);

  MakeLibrary make_library;
  FillWeights fill_normal;   // N(0, scale)
  FillWeights fill_uniform;  // uniform on [-scale, scale)
};

// Returns the kernels of a settled device (cpu, cuda, emulated) for plans alone; needs no GPU.
std::unique_ptr<KernelLibrary> make_planning_library(const Implementations& implementations,
                                                     DeviceKind kind);

}  // namespace dstrain
