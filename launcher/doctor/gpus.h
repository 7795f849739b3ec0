// GPUs of this machine, their driver, and whether this program's kernels run on them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/doctor/machine_line.h"
#include "runtime/core/devices/cuda_facts.h"
#include "runtime/core/devices/device_choice.h"

namespace dstrain {

// The GPUs of this machine, and what this program has for them.
struct GpuReport {
  bool built = false;      // this program has the CUDA backend
  bool nccl = false;       // and NCCL
  std::string driver{};    // the version of the driver that the kernel has loaded; empty: none
  std::string why_none{};  // why a run can use no GPU; empty if it can
  CudaFacts cuda{};
};

// Reads the driver's file below `root`, which tests replace, and asks CUDA. Throws RunError if a GPU cannot be asked.
GpuReport gpu_report(const std::filesystem::path& root);

// Returns whether kernels for `architectures`, in CMake's form ("80-real,90"), run on a GPU of that compute capability
// (90 is 9.0); nothing if the text does not tell ("native").
std::optional<bool> kernels_run_on(std::string_view architectures, int capability);

// Returns the lines about GPUs for a run of `ranks` ranks on a device.
MachineLines gpu_lines(const GpuReport& report, int ranks, DeviceChoice device);

}  // namespace dstrain
