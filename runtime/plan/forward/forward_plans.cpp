// Plans of forward passes alone: of whole samples, and of tokens that come one after the other.
#include <utility>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/plan/build_model.h"
#include "runtime/plan/codecs/codec.h"
#include "runtime/plan/finish_plan.h"
#include "runtime/plan/parallel/parallel.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/pipeline/schedule.h"
#include "runtime/plan/placement/place.h"
#include "runtime/plan/proof/verify.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/slot_plans.h"
#include "runtime/plan/waits.h"

namespace dstrain {
namespace {

// Returns the job of a forward pass alone: everything is on the device.
Job forward_job(Job job) {
  job.offload = {};
  job.optimizer = {};
  return job;
}

// Places the plans of one rank, and proves them.
MemoryTable place_forward(const std::vector<Plan*>& plans, const PlanInputs& inputs) {
  const MemoryTable memory = place_memory(plans, inputs);
  for (Plan* plan : plans) {
    order_communication(*plan, false, false);
    verify(*plan);
  }
  return memory;
}

}  // namespace

Plan forward_plan(Program program, const Job& job, Place place, const PlanInputs& inputs) {
  separate_frozen(program);
  separate_experts(program);
  separate_replicated(program, place);
  Residency residency = step_residency(job, place);
  residency.measures_codecs = false;
  layout(program, job, place, residency);
  gather(program, job, place, residency);
  use_synchronised_weights(program, job);
  join_norms(program, *inputs.library, inputs.threads);
  pack(program, *inputs.library, inputs.threads);
  begin_step(program);
  const int chunks = place.stages() > 1 ? chunks_of(job.pipeline) : 1;
  std::vector<StageTask> tasks;
  for (int chunk = 0; chunk < chunks; ++chunk) tasks.push_back({Phase::forward, chunk, 0});
  return finish_plan(std::move(program), job, place, std::move(tasks), 1, inputs.threads);
}

RankPlan make_slot_plans(const Job& job, const SlotSizes& sizes, const PlanInputs& inputs) {
  return make_slot_plans(job, sizes, DType::f32, inputs);
}

RankPlan make_slot_plans(const Job& trained, const SlotSizes& sizes, DType weights,
                         const PlanInputs& inputs) {
  const Job job = forward_job(trained);
  const auto plan_of = [&](int64_t rows, bool last_row) {
    Program program;
    Builder builder(program, {.dtype = job.dtype,
                              .batch = rows,
                              .seq_len = 1,
                              .training = false,
                              .with_loss = false,
                              .documents = true,
                              .row_multiple = inputs.library->row_multiple()});
    build_model(builder, job.model);
    recognise(program);
    use_slots(program, rows, sizes.slots, sizes.positions);
    narrow_weights(program, weights);
    if (last_row) take_last_row(program);
    program.at(program.logits).lifetime = Lifetime::step;  // for the host
    return forward_plan(std::move(program), job, {}, inputs);
  };
  RankPlan rank;
  rank.validate = plan_of(sizes.slots, false);
  for (const int64_t rows : sizes.passes) rank.other.push_back(plan_of(rows, true));
  std::vector<Plan*> plans{&rank.validate};
  for (Plan& plan : rank.other) plans.push_back(&plan);
  rank.memory = place_forward(plans, inputs);
  return rank;
}

RankPlan make_forward_plan(const Job& trained, int64_t seq_len, bool with_losses,
                           const PlanInputs& inputs) {
  const Job job = forward_job(trained);
  Program program;
  Builder builder(program, {.dtype = job.dtype,
                            .batch = job.model.family().any_batch(),
                            .seq_len = seq_len,
                            .training = false,
                            .with_loss = with_losses,
                            .documents = job.data.packing == Packing::pack,
                            .row_multiple = inputs.library->row_multiple()});
  build_model(builder, job.model);
  recognise(program);
  if (program.logits != kNone)
    program.at(program.logits).lifetime = Lifetime::step;  // for the host
  fuse(program, *inputs.library, inputs.threads);
  RankPlan rank;
  rank.validate = forward_plan(std::move(program), job, {}, inputs);
  rank.memory = place_forward({&rank.validate}, inputs);
  return rank;
}

}  // namespace dstrain
