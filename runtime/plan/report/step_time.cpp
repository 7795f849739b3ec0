#include "runtime/plan/report/step_time.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// What a machine does in a second.
struct Rates {
  double flops = 0;
  double traffic = 0;  // bytes of memory traffic
  double wire = 0;     // bytes sent to another rank
};

constexpr double kHostLink = 2e10;  // bytes per second between a GPU and its host
constexpr double kDisk = 2e9;       // bytes per second from or to a drive

Rates rates_of(const std::string& device, DType dtype) {
  const int slower = dtype == DType::f32 ? 2 : 1;
  if (device == "cuda") return {3e14 / slower, 2e12, 1e11};
  return {5e11 / slower, 2e10, 5e9};
}

double seconds_at(const Rates& rates, const Cost& cost) {
  return std::max(cost.flops / rates.flops, cost.bytes / rates.traffic);
}

}  // namespace

double instruction_seconds(const Program& program, const Instruction& op,
                           const std::string& device) {
  if (is_collective(op.op)) return 0;
  const Cost cost = cost_of(program, op);
  if (op.op == OpKind::copy && device == "cuda") return cost.bytes / 2 / kHostLink;
  if (rule_of(op.op).done_by == DoneBy::drives) return cost.bytes / 2 / kDisk;
  return seconds_at(rates_of(runs_on_host(program, op) ? "cpu" : device, program.dtype), cost);
}

double kernel_seconds_on_device(const Program& program, const Instruction& op,
                                const std::string& device) {
  return seconds_at(rates_of(device, program.dtype), cost_of(program, op));
}

std::string rates_text(const std::string& device, DType dtype) {
  const Rates rates = rates_of(device, dtype), host = rates_of("cpu", dtype);
  const double link = device == "cuda" ? kHostLink : rates.traffic / 2;
  return fmt::format(
      "{:.3g} TFLOP/s, {:.3g} GB/s of memory, {:.3g} GB/s of the host's, {:.3g} GB/s between "
      "device and host, {:.3g} GB/s of disk",
      rates.flops * 1e-12, rates.traffic * 1e-9, host.traffic * 1e-9, link * 1e-9, kDisk * 1e-9);
}

double step_seconds(const Plan& plan, const std::string& device) {
  double seconds =
      static_cast<double>(wire_bytes(plan)) / rates_of(device, plan.program.dtype).wire;
  for (const Issue& issue : plan.order)
    seconds += instruction_seconds(
        plan.program, plan.program.instructions[static_cast<size_t>(issue.instruction)], device);
  return seconds;
}

PhaseSeconds phase_seconds(const Plan& plan, int chunk, const std::string& device) {
  PhaseSeconds times{};
  for (const Instruction& op : plan.program.instructions)
    if (op.when == When::every_micro && op.chunk == chunk)
      times[static_cast<size_t>(op.phase)] += instruction_seconds(plan.program, op, device);
  return times;
}

double message_seconds(const Plan& plan, const std::string& device) {
  int64_t bytes = 0;
  for (const Instruction& op : plan.program.instructions)
    if (op.op == OpKind::send) bytes = std::max(bytes, plan.program.at(op.reads[0]).bytes());
  return static_cast<double>(bytes) / rates_of(device, plan.program.dtype).wire;
}

PipelineTimes pipeline_times(const PipelineOrders& orders, std::span<const Plan* const> stages,
                             const std::string& device) {
  check(orders.stages() == stages.size(), "{} plans for a pipeline of {} stages", stages.size(),
        orders.stages());
  std::vector<PhaseSeconds> times;
  double message = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const std::vector<int>& parts = orders.parts[stage];
    check(stages[stage]->slots == orders.slots[stage], "stage {} has another order", stage);
    for (size_t chunk = 0; chunk < parts.size(); ++chunk) {
      const auto part = static_cast<size_t>(parts[chunk]);
      times.resize(std::max(times.size(), part + 1));
      times[part] = phase_seconds(*stages[stage], static_cast<int>(chunk), device);
    }
    message = std::max(message, message_seconds(*stages[stage], device));
  }
  return run_orders(orders, times, message);
}

}  // namespace dstrain
