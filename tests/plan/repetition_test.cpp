#include "runtime/plan/proof/repetition.h"

#include <catch2/catch.hpp>

#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Plan stage_plan(PipelineSchedule schedule, int stages, int stage) {
  Job job = sharded_job(0, stages);
  job.pipeline.stages = stages;
  job.pipeline.schedule = schedule;
  job.batch = {2 * 12, 2, 12};
  return plan_of(job, stage).train;
}

// The number of tasks from which a period begins.
size_t periods_of(const Plan& plan, size_t tasks, int32_t micros) {
  const Repetition repetition(plan);
  size_t count = 0;
  for (size_t task = 0; task + 1 < plan.tasks.size(); ++task)
    if (const auto period = repetition.period_at(task)) {
      CHECK(period->tasks == tasks);
      CHECK(period->micros == micros);
      ++count;
    }
  return count;
}

}  // namespace

TEST_CASE("1F1B and gradient accumulation repeat a forward and a backward phase") {
  CHECK(periods_of(stage_plan(PipelineSchedule::one_f_one_b, 1, 0), 2, 1) > 16);
  for (const int stage : {0, 1, 2})
    CHECK(periods_of(stage_plan(PipelineSchedule::one_f_one_b, 3, stage), 2, 1) > 12);
  CHECK(periods_of(stage_plan(PipelineSchedule::gpipe, 3, 0), 0, 0) == 0);
}

TEST_CASE("what has copies moves from one to the next, the rest stays") {
  Plan plan = stage_plan(PipelineSchedule::one_f_one_b, 3, 0);
  BufferId ring = kNone, single = kNone;
  for (size_t b = 0; b < plan.address.size(); ++b) {
    const Buffer& buffer = plan.program.buffers[b];
    if (buffer.lifetime != Lifetime::micro || buffer.parent != kNone) continue;
    if (plan.address[b].region != Region::transient) continue;
    (plan.address[b].copies == 3 ? ring : single) = static_cast<BufferId>(b);
  }
  REQUIRE(ring != kNone);
  REQUIRE(single != kNone);
  SECTION("beside a buffer without elements, which has the same address") {
    const BufferId empty = plan.program.add_buffer({.name = "empty", .shape = {0}});
    plan.address.push_back(plan.address[static_cast<size_t>(ring)]);
    plan.address.back().stride = 0;
    for (Instruction& op : plan.program.instructions)
      for (const BufferId id : std::vector(op.writes))
        if (id == ring) op.reads.push_back(empty);
  }
  SECTION("alone") {}
  const Repetition repetition(plan);
  ReplayState state(static_cast<size_t>(plan.channels));
  const auto claim = [&](ReplayState& in, BufferId id, int64_t micro) {
    const Address& a = plan.address[static_cast<size_t>(id)];
    const int64_t begin = a.offset_of(micro);
    in.regions[static_cast<size_t>(a.region)].claim(begin, begin + plan.program.at(id).bytes(),
                                                    owner_of(plan, id, micro));
  };
  ReplayState later = state;
  const auto moved = [&](int64_t micros) { return repetition.moved(state, micros, state.started); };
  for (const int micro : {4, 5}) {
    claim(state, ring, micro);
    claim(later, ring, micro + 2);
  }
  claim(state, single, 4);
  claim(later, single, 6);
  CHECK(same_state(moved(2), later));
  CHECK_FALSE(same_state(moved(1), later));
  CHECK_FALSE(same_state(state, later));
  claim(later, single, 7);
  CHECK_FALSE(same_state(moved(2), later));
}
