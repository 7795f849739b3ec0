// Machine rates: what the machine of a rank does in a second, and how long an instruction takes at these rates. Estimates:
// enough to put settings in order, to divide a model and to draw a step, not to predict one. Pure functions.
#pragma once

#include <string>

#include "runtime/core/devices/device_choice.h"
#include "runtime/core/dtype.h"
#include "runtime/ir/program.h"

namespace dstrain {

// What a processor does in a second.
struct ProcessorRates {
  double flops_f32 = 0, flops_16_bit = 0;  // floating-point operations on values of 32 and 16 bits
  double traffic = 0;                      // bytes read from and written to its memory

  double flops(DType dtype) const { return dtype == DType::f32 ? flops_f32 : flops_16_bit; }
};

// What the machine of a rank does in a second. Transfers in bytes.
struct MachineRates {
  ProcessorRates device, host;  // the host's: as far as one rank uses it
  double link = 0;              // between device and host
  double disk = 0;              // from or to a drive
  double wire = 0;              // sent to another rank
};

// Returns the rates of a usual machine with devices of this kind (Job::device).
MachineRates rates_of(DeviceChoice device);

// Returns in words what estimates for a model of this dtype assume.
std::string rates_text(const MachineRates& rates, DType dtype);

// Returns the seconds of one execution of an instruction; 0 for collectives and messages.
double instruction_seconds(const Program& program, const Instruction& op,
                           const MachineRates& rates);

// Returns the seconds of a kernel on the device, wherever the plan has it run.
double kernel_seconds_on_device(const Program& program, const Instruction& op,
                                const MachineRates& rates);

}  // namespace dstrain
