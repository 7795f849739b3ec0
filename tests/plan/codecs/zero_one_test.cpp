// The kinds of steps of 0/1 Adam.
#include <catch2/catch.hpp>

#include "runtime/ir/quantized.h"
#include "runtime/plan/report/codec_lines.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job zero_one_job(int ranks, DType dtype = DType::bf16) {
  Job job = sharded_job(0, ranks);
  job.dtype = job.wire_dtype = dtype;
  job.model.set("n_embd", 64);
  job.optimizer.kind = OptimizerKind::zero_one_adam;
  job.optimizer.zero_one = {.var_freeze_step = 10,
                            .var_update_scaler = 3,
                            .local_step_scaler = 2,
                            .local_step_clipper = 4};
  return job;
}

int64_t packed_bytes(const RankPlan& plans, int64_t ranks) {
  int64_t packed = 0;
  for (const Unit& unit : plans.train.program.units) packed += sign_bytes(unit.elements / ranks);
  return packed;
}

}  // namespace

TEST_CASE("0/1 Adam has four kinds of steps, or those that its constants leave") {
  using Kinds = std::vector<StepKind>;
  const StepKind sync = StepKind::regular, whole = StepKind::whole_gradients,
                 signs = StepKind::gradient_signs, local = StepKind::local;
  Job job = zero_one_job(4);
  CHECK(step_kinds(job) == Kinds{sync, whole, signs, local});
  Kinds kinds;
  for (int64_t applied = 0; applied < 16; ++applied)
    kinds.push_back(kind_of_step(job, applied, StepKind::regular));
  CHECK(kinds == Kinds{whole, whole, whole, signs, whole, signs, whole, signs, whole, signs,  //
                       sync, sync, local, sync, local, local});
  CHECK(steps_text(job, whole) == "steps 1 to 3, and up to 10 each 2nd, 4th, ...");
  CHECK(steps_text(job, signs) == "the other steps up to 10");
  CHECK(steps_text(job, sync) == "from step 11 on, at intervals of 1 to 4");
  CHECK(steps_text(job, local) == "the other steps from 11 on");
  CHECK(step_kinds(zero_one_job(1)).size() == 4);  // so that it is the same training
  job.optimizer.zero_one.var_update_scaler = 10;
  job.optimizer.zero_one.local_step_clipper = 1;
  CHECK(step_kinds(job) == Kinds{sync, whole});
  CHECK(steps_text(job, whole) == "steps 1 to 10");
  CHECK(steps_text(job, sync) == "from step 11 on");
  const std::string text = step_kinds_text(zero_one_job(2), plan_of(zero_one_job(2)));
  for (const char* name : {"regular", "whole gradients", "gradient signs", "local"})
    CHECK(text.find(name) != std::string::npos);
}

TEST_CASE("0/1 Adam: bytes are those of gradients, of signs in two hops, or none") {
  for (const int ranks : {2, 3, 4, 8})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const RankPlan plans = plan_of(zero_one_job(ranks, dtype));
      const int64_t signs = 2 * (ranks - 1) * packed_bytes(plans, ranks);
      CHECK(sent_on(plans.train, kStateAxes) == signs);
      CHECK(sent_on(plans.training(StepKind::gradient_signs), kStateAxes) == signs);
      CHECK(sent_on(plans.training(StepKind::whole_gradients), kStateAxes) ==
            (ranks - 1) * size_of(dtype) * padded(plans) / ranks);  // twice: an all-reduce
      CHECK(sent_on(plans.training(StepKind::local), kStateAxes) == 0);
      CHECK(wire_bytes(plans.training(StepKind::local)) == 0);
    }
}

TEST_CASE("0/1 Adam: what the steps of each kind do") {
  const RankPlan plans = plan_of(zero_one_job(4));
  const Plan &whole = plans.training(StepKind::whole_gradients),
             &signs = plans.training(StepKind::gradient_signs),
             &local = plans.training(StepKind::local);
  const size_t units = plans.train.program.units.size();
  CHECK(count_ops(signs, OpKind::all_reduce) == 0);
  CHECK(count_ops(signs, OpKind::quantize_signs) == units);
  CHECK(count_ops(signs, OpKind::frozen_adam) == count_ops(whole, OpKind::adam));
  CHECK(count_ops(signs, OpKind::adam) == 0);
  for (const Plan* plan : {&plans.train, &local}) {
    CHECK(count_ops(*plan, OpKind::local_step) == units);
    CHECK(count_ops(*plan, OpKind::local_weights) == count_ops(whole, OpKind::adam));
  }
  CHECK(count_ops(plans.train, OpKind::end_local_steps) == count_ops(whole, OpKind::adam));
  CHECK(count_ops(local, OpKind::quantize_signs) == 0);
  CHECK(count_ops(local, OpKind::end_local_steps) == 0);
  // Weights are made before they are packed for products.
  bool packed = false;
  for (const Instruction& op : local.program.instructions) {
    packed = packed || op.op == OpKind::pack_weight;
    if (op.op == OpKind::local_weights) CHECK_FALSE(packed);
  }
}

TEST_CASE("0/1 Adam keeps masters beside the parameters, and what each rank has moved") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {1, 4}) {
      const RankPlan plans = plan_of(zero_one_job(ranks, dtype), 0);
      const Program& p = plans.train.program;
      CHECK(p.codec_state.size() ==
            2 * p.parameters.size() + (ranks == 1 ? 0 : 2) * p.units.size());
      for (const CodecState& state : p.codec_state) {
        CHECK(state.per_rank);
        CHECK(state.mean == state.slot.starts_with("local_"));
      }
      for (const Unit& unit : p.units) {
        CHECK(p.find("master:" + unit.name) != kNone);
        CHECK(p.find("master:" + unit.name) != p.find("params:" + unit.name));
      }
    }
}
