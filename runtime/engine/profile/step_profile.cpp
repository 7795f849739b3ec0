#include "runtime/engine/profile/step_profile.h"

#include <cmath>
#include <string>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/plan/estimates/step_time.h"

namespace dstrain {
namespace {

const Instruction& traced_instruction(const Plan& plan, size_t issue) {
  return plan.program.instructions[static_cast<size_t>(plan.order[issue].instruction)];
}

int64_t parameter_elements(const std::vector<Parameter>& parameters) {
  int64_t elements = 0;
  for (const Parameter& p : parameters) elements += p.shape.elements();
  return elements;
}

// Returns the elements of parameters that the rank holds between their uses, of those of its modules.
int64_t held_between_uses(const Program& program, const Place& place) {
  double held = 0;
  for (const Unit& unit : program.units) {
    int64_t elements = 0;
    for (const int index : unit.parameters) {
      const Parameter& p = program.parameters[static_cast<size_t>(index)];
      elements += own_elements(p.part, p.shape);
    }
    held += static_cast<double>(elements) / place.ranks_in(unit.buffers.values.divided);
  }
  return static_cast<int64_t>(std::ceil(held));
}

// The seconds of a micro-batch's forward pass: of each instruction, and of what is none's.
struct ForwardSeconds {
  std::vector<double> instructions;
  double rest = 0;
};

ForwardSeconds forward_seconds(const StepTrace& trace) {
  const Plan& plan = *trace.plan;
  ForwardSeconds seconds;
  seconds.instructions.resize(plan.program.instructions.size());
  const double scale = 1e-9 / static_cast<double>(plan.micro_batches);
  int64_t begin = trace.whole.begin_ns;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Instruction& op = traced_instruction(plan, i);
    // An issue takes until the next one begins to wait.
    const int64_t end = trace.waits[i + 1].begin_ns, waited = trace.waits[i].size();
    const double own = scale * static_cast<double>(end - begin - waited);
    begin = end;
    if (is_forward(op)) {
      seconds.instructions[static_cast<size_t>(plan.order[i].instruction)] += own;
      seconds.rest += scale * static_cast<double>(waited);
    } else if (op.when == When::step_begin) {
      seconds.rest += own + scale * static_cast<double>(waited);
    }
  }
  return seconds;
}

}  // namespace

StepSeconds estimated_seconds(const Plan& plan, DeviceChoice device) {
  const MachineRates rates = rates_of(device);
  StepSeconds seconds;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Instruction& op = traced_instruction(plan, i);
    const bool forward = op.when == When::step_begin || op.phase == Phase::forward;
    double& part = op.when == When::step_end ? seconds.update
                   : forward                 ? seconds.forward
                                             : seconds.backward;
    part += instruction_seconds(plan.program, op, rates);
  }
  seconds.forward /= static_cast<double>(plan.micro_batches);
  seconds.backward /= static_cast<double>(plan.micro_batches);
  seconds.step = step_seconds(plan, rates);
  return seconds;
}

StepProfile profile_of(const Job& job, const StepTrace& trace, const StepPhases& phases) {
  const Plan& plan = *trace.plan;
  const Program& program = plan.program;
  StepProfile profile{.steps_before = trace.step - 1,
                      .ranks = job.ranks,
                      .data_ranks = job.data_ranks(),
                      .stages = plan.place.stages(),
                      .tensor_ranks = job.tensor_ranks,
                      .sequence_ranks = job.sequence_ranks,
                      .micro_batch = job.batch.micro_batch,
                      .micro_batches = plan.micro_batches};
  const ForwardSeconds forward = forward_seconds(trace);
  profile.model = module_tree(std::string(job.model.family().type), program, forward_work(program),
                              forward.instructions, forward.rest);
  if (const int64_t held = held_between_uses(program, plan.place);
      job.zero_stage == 3 && held < profile.model.parameters)
    profile.held_parameters = held;
  profile.model_parameters = parameter_elements(program.model_parameters());
  profile.model_flops = profile.model.flops;
  const PhaseTimes all = phases.all();
  const double scale = 1e-3 / static_cast<double>(plan.micro_batches);
  profile.measured = {.forward = scale * all.forward,
                      .backward = scale * all.backward(),
                      .update = 1e-3 * all.step,
                      .step = 1e-9 * static_cast<double>(trace.whole.size())};
  profile.estimated = estimated_seconds(plan, job.device);
  return profile;
}

}  // namespace dstrain
