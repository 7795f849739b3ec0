#include "runtime/plan/plan.h"

#include <algorithm>

#include "runtime/config/job.h"
#include "runtime/core/error.h"
#include "runtime/ir/kernel.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/pipeline/divide.h"
#include "runtime/plan/pipeline/verify_messages.h"
#include "runtime/plan/place.h"
#include "runtime/plan/verify.h"
#include "runtime/plan/waits.h"

namespace dstrain {
namespace {

// Returns the order of a step: the list expanded as the slots and Instruction::when say.
std::vector<Issue> expand(const Program& program, const std::vector<Slot>& slots,
                          int64_t micro_batches) {
  std::vector<Issue> order;
  const auto count = static_cast<int32_t>(program.instructions.size());
  const auto issue_all = [&](int32_t micro, auto wanted) {
    for (int32_t i = 0; i < count; ++i)
      if (wanted(program.instructions[static_cast<size_t>(i)])) order.push_back({i, micro});
  };
  issue_all(0, [](const Instruction& op) { return op.when == When::step_begin; });
  for (const Slot& slot : slots) {
    const bool last = slot.micro + 1 == micro_batches;
    issue_all(slot.micro, [&](const Instruction& op) {
      return op.phase == slot.phase &&
             (op.when == When::every_micro || (last && op.when == When::last_micro));
    });
  }
  issue_all(0, [](const Instruction& op) { return op.when == When::step_end; });
  return order;
}

Plan finish(Program program, const Job& job, Place place, std::vector<Slot> slots,
            int64_t micro_batches, int threads) {
  Plan plan;
  plan.order = expand(program, slots, micro_batches);
  plan.slots = std::move(slots);
  plan.program = std::move(program);
  plan.micro_batches = micro_batches;
  plan.place = place;
  plan.channels = channels_of(place);
  plan.threads = threads;
  plan.max_live_elements = job.gather.max_live_elements;
  return plan;
}

// What all ranks of a job begin with.
struct WholeModel {
  Program train;
  Program validate;                   // empty if the job never validates
  std::vector<int64_t> first_layers;  // of the stages of a pipeline
};

WholeModel whole_model(const Job& job, const PlanInputs& inputs) {
  WholeModel whole;
  const int stages = job.pipeline.stages;
  const auto build = [&](Program& program, const ForwardOptions& options) {
    Builder builder(program, options);
    inputs.build_model(builder, job.model);
  };
  build(whole.train, {.dtype = job.dtype, .batch = job.batch.micro_batch});
  backward(whole.train);
  fuse(whole.train, *inputs.library, inputs.threads);
  if (stages > 1) whole.first_layers = divide_layers(whole.train, job);
  tie_stages(whole.train, whole.first_layers, stages);
  if (job.eval_interval == 0) return whole;
  build(whole.validate, {.dtype = job.dtype, .batch = job.batch.micro_batch, .training = false});
  fuse(whole.validate, *inputs.library, inputs.threads);
  tie_stages(whole.validate, whole.first_layers, stages);
  return whole;
}

Plan train_plan(const WholeModel& whole, const Job& job, Place place, const PlanInputs& inputs) {
  Program program = whole.train;
  keep_stage(program, whole.first_layers, place);
  recompute(program, job);
  const Residency residency = residency_of(job, place);
  layout(program, place, residency);
  reduce(program, job, place, residency);
  update(program, job, place, residency);
  gather(program, job, residency);
  pack(program, *inputs.library, inputs.threads);
  begin_step(program);
  const int64_t micro_batches = job.batch.accumulation;
  std::vector<Slot> slots =
      stage_order(job.pipeline.schedule, place.stages, job.pipeline.virtual_stages, place.stage,
                  static_cast<int>(micro_batches));
  return finish(std::move(program), job, place, std::move(slots), micro_batches, inputs.threads);
}

// `program`: the forward pass of a stage.
Plan forward_plan(Program program, const Job& job, Place place, const PlanInputs& inputs) {
  const Residency residency = residency_of(job, place);
  layout(program, place, residency);
  gather(program, job, residency);
  pack(program, *inputs.library, inputs.threads);
  begin_step(program);
  return finish(std::move(program), job, place, {{Phase::forward, 0, 0}}, 1, inputs.threads);
}

RankPlan draft(const WholeModel& whole, const Job& job, Place place, const PlanInputs& inputs) {
  RankPlan rank;
  std::vector<Plan*> plans{&rank.train};
  rank.train = train_plan(whole, job, place, inputs);
  if (job.eval_interval > 0) {
    Program program = whole.validate;
    keep_stage(program, whole.first_layers, place);
    rank.validate = forward_plan(std::move(program), job, place, inputs);
    plans.push_back(&rank.validate);
  }
  rank.memory = place_memory(plans, *inputs.library);
  return rank;
}

void prove(RankPlan& rank, const Job& job) {
  for (Plan* plan : {&rank.train, &rank.validate}) {
    order_communication(*plan, job.overlap_comm);
    verify(*plan);
  }
}

}  // namespace

RankPlan make_rank_plan(const Job& job, Place place, const PlanInputs& inputs) {
  RankPlan rank = draft(whole_model(job, inputs), job, place, inputs);
  prove(rank, job);
  return rank;
}

std::vector<RankPlan> draft_stage_plans(const Job& job, int rank, const PlanInputs& inputs) {
  const WholeModel whole = whole_model(job, inputs);
  std::vector<RankPlan> stages;
  Place place = place_of(job, rank);
  for (place.stage = 0; place.stage < place.stages; ++place.stage)
    stages.push_back(draft(whole, job, place, inputs));
  return stages;
}

std::vector<RankPlan> make_stage_plans(const Job& job, int rank, const PlanInputs& inputs) {
  std::vector<RankPlan> stages = draft_stage_plans(job, rank, inputs);
  std::vector<const Plan*> plans;
  for (RankPlan& stage : stages) {
    prove(stage, job);
    plans.push_back(&stage.train);
  }
  if (stages.size() > 1) verify_messages(plans);
  return stages;
}

RankPlan make_decode_plan(const Job& job, int64_t seq_len, const PlanInputs& inputs) {
  Program program;
  Builder builder(
      program,
      {.dtype = job.dtype, .batch = 1, .seq_len = seq_len, .training = false, .with_loss = false});
  inputs.build_model(builder, job.model);
  fuse(program, *inputs.library, inputs.threads);
  RankPlan rank;
  rank.validate = forward_plan(std::move(program), job, {}, inputs);
  rank.memory = place_memory({&rank.validate}, *inputs.library);
  order_communication(rank.validate, false);
  verify(rank.validate);
  return rank;
}

std::vector<int32_t> count_collectives(const Plan& plan) {
  std::vector<int32_t> counts(static_cast<size_t>(plan.channels));
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (is_collective(op.op)) ++counts[static_cast<size_t>(op.channel)];
  }
  return counts;
}

int64_t wire_bytes(const Plan& plan) {
  constexpr int64_t kSmallest = 1024;  // bytes; smaller messages do not count (docs/formats.md)
  const int64_t n = plan.place.ranks;
  int64_t total = 0;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (!is_collective(op.op)) continue;
    if (op.op == OpKind::recv) continue;  // its sender counts it
    if (op.op == OpKind::send) {
      const int64_t sent = plan.program.at(op.reads[0]).bytes();
      if (sent >= kSmallest) total += sent;
      continue;
    }
    const int64_t bytes =
        std::max(plan.program.at(op.reads[0]).bytes(), plan.program.at(op.writes[0]).bytes());
    if (bytes >= kSmallest) total += rule_of(op.op).ring_passes * (n - 1) * bytes / n;
  }
  return total;
}

}  // namespace dstrain
