#include <catch2/catch.hpp>

#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("a product that gains from it gets its weight packed once per step") {
  const Plan plan = make_rank_plan(small_job(), data_place(0, 1), fake_inputs(0, true)).train;
  // fc and proj (48x12) are too small; nothing but attention's qkv (36x12) and them exist per block
  CHECK(count_ops(plan, OpKind::pack_weight) == 0);
  Job job = small_job();
  job.model.set("n_embd", 24);
  const Plan bigger = make_rank_plan(job, data_place(0, 1), fake_inputs(0, true)).train;
  CHECK(count_ops(bigger, OpKind::pack_weight) ==
        2 * 2 * 3);  // blocks x directions x (qkv, fc, proj)
  for (const Instruction& op : bigger.program.instructions)
    if (op.op == OpKind::pack_weight) CHECK(op.when == When::step_begin);
}

TEST_CASE("a weight that is gathered in a micro-batch is packed when it has come") {
  const Job job = sharded_job(3);
  const Plan plan = make_rank_plan(job, data_place(1, job.ranks), fake_inputs(0, true)).train;
  CHECK(count_ops(plan, OpKind::pack_weight) > 0);
  for (const size_t i : issues_of(plan, OpKind::pack_weight)) {
    const Instruction& op = op_at(plan, i);
    CHECK(op.when == When::every_micro);
    CHECK(plan.program.at(op.writes[0]).lifetime == Lifetime::micro);
    CHECK(op_at(plan, i + 1).op != OpKind::pack_weight);  // right before its product
  }
}
