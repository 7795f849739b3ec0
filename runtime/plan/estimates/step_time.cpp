#include "runtime/plan/estimates/step_time.h"

#include <algorithm>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"

namespace dstrain {

double step_seconds(const Plan& plan, const MachineRates& rates) {
  double seconds = static_cast<double>(wire_bytes(plan)) / rates.wire;
  for (const Issue& issue : plan.order)
    seconds += instruction_seconds(plan.program, plan.instruction_of(issue), rates);
  return seconds;
}

PhaseSeconds phase_seconds(const Plan& plan, int chunk, const MachineRates& rates) {
  PhaseSeconds times{};
  for (const Instruction& op : plan.program.instructions)
    if (op.when == When::every_micro && op.chunk == chunk)
      times[static_cast<size_t>(op.phase)] += instruction_seconds(plan.program, op, rates);
  return times;
}

double message_seconds(const Plan& plan, const MachineRates& rates) {
  int64_t bytes = 0;
  for (const Instruction& op : plan.program.instructions)
    if (sends_message(op)) bytes = std::max(bytes, plan.program.at(op.reads[0]).bytes());
  return static_cast<double>(bytes) / rates.wire;
}

PipelineTimes pipeline_times(const PipelineOrders& orders, std::span<const Plan* const> stages,
                             const MachineRates& rates) {
  check(orders.stages() == stages.size(), "{} plans for a pipeline of {} stages", stages.size(),
        orders.stages());
  std::vector<PhaseSeconds> times;
  double message = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const std::vector<int>& parts = orders.parts[stage];
    check(stages[stage]->tasks == orders.tasks[stage], "stage {} has another order", stage);
    for (size_t chunk = 0; chunk < parts.size(); ++chunk) {
      const auto part = static_cast<size_t>(parts[chunk]);
      times.resize(std::max(times.size(), part + 1));
      times[part] = phase_seconds(*stages[stage], static_cast<int>(chunk), rates);
    }
    message = std::max(message, message_seconds(*stages[stage], rates));
  }
  return run_orders(orders, times, message);
}

}  // namespace dstrain
