#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/plan/passes/passes.h"
#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

TEST_CASE("ranks add once per step at the boundary and once per micro-batch otherwise") {
  Job job = small_job();
  const auto reduces = [&] {
    const Plan plan = train_plan(job, data_place(1, 2));
    size_t n = 0;
    for (const Issue& i : plan.order)
      n += plan.program.instructions[static_cast<size_t>(i.instruction)].op == OpKind::all_reduce;
    return n;
  };
  const size_t units = 4;  // embedding, two blocks, head
  CHECK(reduces() == units);
  job.reduce = ReduceMode::micro_batch;
  CHECK(reduces() == 3 * units);
}

TEST_CASE("one rank rounds its gradients to a 16-bit wire although it sends nothing") {
  Job job = small_job();
  CHECK(count_ops(train_plan(job), OpKind::round_wire) == 0);
  job.wire_dtype = DType::bf16;
  CHECK(count_ops(train_plan(job), OpKind::round_wire) == 4);
}

TEST_CASE("what 16-bit gradients take besides is one unit's f32 ones, on their way") {
  for (const int stage : {0, 1, 2, 3})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      Job job = sharded_job(stage);
      job.model.set("n_layer", 12);
      job.dtype = job.wire_dtype = DType::bf16;
      job.reduce = reduce;
      const RankPlan wide = plan_of(job);
      job.grad_dtype = DType::bf16;
      const RankPlan narrow = plan_of(job);
      const bool sliced = stage >= 2 && reduce == ReduceMode::micro_batch;
      const int64_t saved = 2 * padded(narrow) / (sliced ? job.ranks : 1);
      const int64_t unit = narrow.train.program.units[1].elements * 4;
      CHECK(narrow.memory.total() <= wide.memory.total() - saved + unit + 4096);
    }
}

TEST_CASE("of a micro-batch's gradients only the padding is zeroed") {
  Job job = sharded_job(2, 3);
  job.model.set("n_embd", 30);
  const Program program = plan_of(job).train.program;
  int64_t zeroed = 0, parameters = 0;
  for (const Instruction& op : program.instructions)
    if (op.op == OpKind::zero) zeroed += program.at(op.writes[0]).shape.elements();
  for (const Parameter& p : program.parameters) parameters += p.shape.elements();
  CHECK(zeroed > 0);
  CHECK(zeroed + parameters == padded(plan_of(job)));
}

TEST_CASE("gradients on their way are bounded by the bucket, and by a share of the model") {
  Job job = sharded_job(2);
  job.model.set("n_layer", 12);
  const auto largest_wait = [&] {  // units sent and not yet added
    const Plan plan = plan_of(job).train;
    int open = 0, most = 0;
    for (size_t i = 0; i < plan.order.size(); ++i) {
      open += op_at(plan, i).op == OpKind::reduce_scatter;
      open -= op_at(plan, i).op == OpKind::accumulate;
      most = std::max(most, open);
    }
    return most;
  };
  CHECK(largest_wait() == 2);
  job.reduce_bucket_elements = 1;
  CHECK(largest_wait() == 1);
  // Few large layers: stage 2 must not need more than stage 1.
  job.reduce_bucket_elements = 500'000'000;
  job.model = BenchmarkModel{.n_layer = 3, .in_size = 256, .hidden_size = 256, .out_size = 256};
  job.batch.accumulation = 1;
  CHECK(largest_wait() == 1);
  const int64_t two = plan_of(job).memory.total();
  job.zero_stage = 1;
  job.reduce = ReduceMode::boundary;
  CHECK(two < plan_of(job).memory.total());
}

TEST_CASE("where the optimizer is sharded only the owner of a slice gets its sum") {
  for (const int stage : {0, 1, 2, 3}) {
    const Plan plan = plan_of(sharded_job(stage)).train;
    const bool scattered = stage >= 1;
    CHECK(issues_of(plan, OpKind::all_reduce).empty() == scattered);
    CHECK(issues_of(plan, OpKind::reduce_scatter).empty() != scattered);
  }
}

TEST_CASE("f32 gradients are rounded to a 16-bit wire, sent and widened") {
  Job job = small_job();
  job.wire_dtype = DType::bf16;
  const Plan plan = train_plan(job, data_place(0, 2));
  std::vector<std::string> names;
  for (const Instruction& op : plan.program.instructions)
    if (op.when == When::last_micro) names.emplace_back(name_of(op.op));
  REQUIRE(names.size() == 3 * plan.program.units.size());
  for (const std::string name : {"cast", "all_reduce", "accumulate"})
    CHECK(std::count(names.begin(), names.end(), name) ==
          static_cast<ptrdiff_t>(plan.program.units.size()));
  for (const size_t i : issues_of(plan, OpKind::all_reduce))
    CHECK(plan.program.at(op_at(plan, i).reads[0]).dtype == DType::bf16);
}
