#include "runtime/plan/cost/machine_rates.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

constexpr ProcessorRates kCpu{.flops_f32 = 2.5e11, .flops_16_bit = 5e11, .traffic = 2e10};
constexpr ProcessorRates kGpu{.flops_f32 = 1.5e14, .flops_16_bit = 3e14, .traffic = 2e12};
constexpr double kDisk = 2e9;

double seconds_of(const Program& program, const Instruction& op, const ProcessorRates& rates) {
  const Cost cost = cost_of(program, op);
  return std::max(cost.flops / rates.flops(program.dtype), cost.bytes / rates.traffic);
}

}  // namespace

MachineRates rates_of(DeviceChoice device) {
  if (is_gpu(device))
    return {.device = kGpu, .host = kCpu, .link = 2e10, .disk = kDisk, .wire = 1e11};
  // A copy reads and writes the same memory.
  return {.device = kCpu, .host = kCpu, .link = kCpu.traffic / 2, .disk = kDisk, .wire = 5e9};
}

std::string rates_text(const MachineRates& rates, DType dtype) {
  return fmt::format(
      "{:.3g} TFLOP/s, {:.3g} GB/s of memory, {:.3g} GB/s of the host's, {:.3g} GB/s between "
      "device and host, {:.3g} GB/s of disk",
      rates.device.flops(dtype) * 1e-12, rates.device.traffic * 1e-9, rates.host.traffic * 1e-9,
      rates.link * 1e-9, rates.disk * 1e-9);
}

double instruction_seconds(const Program& program, const Instruction& op,
                           const MachineRates& rates) {
  if (is_collective(op.op)) return 0;
  switch (rule_of(op.op).done_by) {
    case DoneBy::copies:
      return cost_of(program, op).bytes / 2 / rates.link;
    case DoneBy::drives:
      return cost_of(program, op).bytes / 2 / rates.disk;
    default:
      return seconds_of(program, op, runs_on_host(program, op) ? rates.host : rates.device);
  }
}

double kernel_seconds_on_device(const Program& program, const Instruction& op,
                                const MachineRates& rates) {
  return seconds_of(program, op, rates.device);
}

}  // namespace dstrain
