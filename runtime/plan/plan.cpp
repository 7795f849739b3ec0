#include "runtime/plan/plan.h"

#include <algorithm>

#include "runtime/config/job.h"
#include "runtime/core/error.h"
#include "runtime/ir/kernel.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/place.h"
#include "runtime/plan/verify.h"
#include "runtime/plan/waits.h"

namespace dstrain {
namespace {

// Returns the order of a step: the list expanded as Instruction::when says.
std::vector<Issue> expand(const Program& program, int64_t micro_batches) {
  std::vector<Issue> order;
  const auto count = static_cast<int32_t>(program.instructions.size());
  const auto issue_all = [&](int32_t micro, auto wanted) {
    for (int32_t i = 0; i < count; ++i)
      if (wanted(program.instructions[static_cast<size_t>(i)].when)) order.push_back({i, micro});
  };
  issue_all(0, [](When when) { return when == When::step_begin; });
  for (int64_t m = 0; m < micro_batches; ++m) {
    const bool last = m + 1 == micro_batches;
    issue_all(static_cast<int32_t>(m), [&](When when) {
      return when == When::every_micro || (last && when == When::last_micro);
    });
  }
  issue_all(0, [](When when) { return when == When::step_end; });
  return order;
}

Plan finish(Program program, const Job& job, Place place, int64_t micro_batches, int threads) {
  Plan plan;
  plan.order = expand(program, micro_batches);
  plan.program = std::move(program);
  plan.micro_batches = micro_batches;
  plan.place = place;
  plan.threads = threads;
  plan.max_live_elements = job.gather.max_live_elements;
  return plan;
}

Plan train_plan(const Job& job, Place place, const PlanInputs& inputs) {
  Program program;
  Builder builder(program, {.dtype = job.dtype, .batch = job.batch.micro_batch});
  inputs.build_model(builder, job.model);
  backward(program);
  fuse(program, *inputs.library, inputs.threads);
  recompute(program, job);
  const Residency residency = residency_of(job, place);
  layout(program, place, residency);
  reduce(program, job, place, residency);
  update(program, job, place, residency);
  gather(program, job, residency);
  pack(program, *inputs.library, inputs.threads);
  begin_step(program);
  return finish(std::move(program), job, place, job.batch.accumulation, inputs.threads);
}

Plan forward_plan(const Job& job, const ForwardOptions& options, Place place,
                  const PlanInputs& inputs) {
  Program program;
  Builder builder(program, options);
  inputs.build_model(builder, job.model);
  fuse(program, *inputs.library, inputs.threads);
  const Residency residency = residency_of(job, place);
  layout(program, place, residency);
  gather(program, job, residency);
  pack(program, *inputs.library, inputs.threads);
  begin_step(program);
  return finish(std::move(program), job, place, 1, inputs.threads);
}

}  // namespace

RankPlan make_rank_plan(const Job& job, Place place, const PlanInputs& inputs) {
  RankPlan rank;
  std::vector<Plan*> plans{&rank.train};
  rank.train = train_plan(job, place, inputs);
  if (job.eval_interval > 0) {
    rank.validate =
        forward_plan(job, {.dtype = job.dtype, .batch = job.batch.micro_batch, .training = false},
                     place, inputs);
    plans.push_back(&rank.validate);
  }
  rank.memory = place_memory(plans, *inputs.library);
  for (Plan* plan : plans) {
    order_communication(*plan, job.overlap_comm);
    verify(*plan);
  }
  return rank;
}

RankPlan make_decode_plan(const Job& job, int64_t seq_len, const PlanInputs& inputs) {
  RankPlan rank;
  rank.validate = forward_plan(
      job,
      {.dtype = job.dtype, .batch = 1, .seq_len = seq_len, .training = false, .with_loss = false},
      {}, inputs);
  rank.memory = place_memory({&rank.validate}, *inputs.library);
  order_communication(rank.validate, false);
  verify(rank.validate);
  return rank;
}

int32_t count_collectives(const Plan& plan) {
  return static_cast<int32_t>(
      std::count_if(plan.order.begin(), plan.order.end(), [&](const Issue& issue) {
        return is_collective(plan.program.instructions[static_cast<size_t>(issue.instruction)].op);
      }));
}

int64_t wire_bytes(const Plan& plan) {
  constexpr int64_t kSmallest = 1024;  // bytes; smaller messages do not count (docs/formats.md)
  const int64_t n = plan.place.ranks;
  int64_t total = 0;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (!is_collective(op.op)) continue;
    const int64_t bytes =
        std::max(plan.program.at(op.reads[0]).bytes(), plan.program.at(op.writes[0]).bytes());
    if (bytes >= kSmallest) total += rule_of(op.op).ring_passes * (n - 1) * bytes / n;
  }
  return total;
}

}  // namespace dstrain
