// Steps in which momenta travel as signs.
#include <catch2/catch.hpp>

#include "runtime/ir/quantized.h"
#include "runtime/plan/report/codec_lines.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job one_bit_job(int ranks, DType dtype = DType::bf16) {
  Job job = sharded_job(0, ranks);
  job.dtype = job.wire_dtype = dtype;
  job.model.set("n_embd", 64);
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  job.optimizer.freeze_step = 5;
  return job;
}

}  // namespace

TEST_CASE("1-bit Adam: gradients are added until freeze_step, then no more") {
  const Job job = one_bit_job(4);
  CHECK(kind_of_step(job, 4, StepKind::whole_gradients) == StepKind::whole_gradients);
  CHECK(kind_of_step(job, 5, StepKind::whole_gradients) == StepKind::regular);
  CHECK(steps_text(job, StepKind::whole_gradients) == "steps 1 to 5");
  CHECK(steps_text(job, StepKind::regular) == "from step 6 on");
  // One rank freezes too, so that it is the same training.
  CHECK(step_kinds(one_bit_job(1)).size() == 2);
  const RankPlan plans = plan_of(job);
  const Plan& whole = plans.training(StepKind::whole_gradients);
  Job adamw = job;
  adamw.optimizer.kind = OptimizerKind::adam;
  CHECK(op_names(whole, "step") == op_names(plan_of(adamw).train, "step"));
  CHECK(comm_work(whole) == comm_work(plan_of(adamw).train));
  CHECK(count_ops(plans.train, OpKind::all_reduce) == 0);
  CHECK(count_ops(plans.train, OpKind::cast) == 0);
  CHECK(count_ops(plans.train, OpKind::adam) == 0);
  const size_t units = plans.train.program.units.size();
  for (const OpKind op : {OpKind::local_momentum, OpKind::quantize_signs, OpKind::all_to_all,
                          OpKind::requantize_signs, OpKind::all_gather})
    CHECK(count_ops(plans.train, op) == units);
  // The sum, and to measure what is lost the rank's own part in each hop.
  CHECK(count_ops(plans.train, OpKind::dequantize_signs) == 3 * units);
  CHECK(count_ops(plans.train, OpKind::frozen_adam) == count_ops(whole, OpKind::adam));
}

TEST_CASE("1-bit Adam: a unit's signs travel while its neighbours are packed, if they may") {
  Job job = one_bit_job(2);
  for (const bool overlap : {false, true}) {
    job.overlap_comm = overlap;
    const Plan plan = plan_of(job).train;
    std::vector<OpKind> first;
    for (const Instruction& op : plan.program.instructions)
      if (op.when == When::step_end && first.size() < 4 &&
          (op.op == OpKind::local_momentum || op.op == OpKind::quantize_signs ||
           op.op == OpKind::all_to_all || op.op == OpKind::requantize_signs))
        first.push_back(op.op);
    CHECK(first[2] == OpKind::all_to_all);
    CHECK(first[3] == (overlap ? OpKind::local_momentum : OpKind::requantize_signs));
  }
}

TEST_CASE("1-bit Adam: bytes are those of the signs, in two hops") {
  for (const int ranks : {2, 3, 4, 8})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const RankPlan plans = plan_of(one_bit_job(ranks, dtype));
      int64_t packed = 0;
      for (const Unit& unit : plans.train.program.units)
        packed += sign_bytes(unit.elements / ranks);
      CHECK(sent_on(plans.train, kStateAxes) == 2 * (ranks - 1) * packed);
      CHECK(sent_on(plans.training(StepKind::whole_gradients), kStateAxes) ==
            (ranks - 1) * size_of(dtype) * padded(plans) / ranks);  // twice: an all-reduce
      if (ranks > 2) continue;
      const double ratio =
          static_cast<double>(wire_bytes(plans.train)) /
          static_cast<double>(wire_bytes(plans.training(StepKind::whole_gradients)));
      CHECK(ratio == Approx((1 + 32.0 / 512) / (8 * size_of(dtype))).epsilon(0.02));
    }
}

TEST_CASE("1-bit Adam keeps what packing loses: of all parts, and of the rank's own") {
  const RankPlan plans = plan_of(one_bit_job(4), 2);
  const Program& p = plans.train.program;
  REQUIRE(p.codec_state.size() == 2 * p.units.size());
  for (const CodecState& state : p.codec_state) {
    CHECK(state.per_rank);
    const auto unit = std::ranges::find(p.units, state.name, &Unit::name);
    REQUIRE(unit != p.units.end());
    CHECK((state.slot == "worker_error" || state.slot == "owner_error"));
    CHECK(p.at(state.values).shape.elements() * (state.slot == "worker_error" ? 1 : 4) ==
          unit->elements);
  }
  CHECK(plan_of(one_bit_job(1), 0).train.program.codec_state.empty());
  for (int rank = 0; rank < 4; ++rank)
    CHECK(comm_work(plan_of(one_bit_job(4), rank).train) == comm_work(plans.train));
}

TEST_CASE("1-bit Adam at stage 1: a step gathers the momentum, the others send signs and weights") {
  for (const int64_t ranks : {2, 3, 4, 8})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Job job = one_bit_job(static_cast<int>(ranks), dtype);
      CHECK_FALSE(gathers_momentum(job));
      job.zero_stage = 1;
      CHECK(gathers_momentum(job));
      const RankPlan plans = plan_of(job);
      Job adamw = job;
      adamw.optimizer.kind = OptimizerKind::adam;
      CHECK_FALSE(gathers_momentum(adamw));
      const Plan &whole = plans.training(StepKind::whole_gradients),
                 &gathers = plans.training(StepKind::whole_momentum);
      CHECK(comm_work(whole) == comm_work(plan_of(adamw).train));
      int64_t packed = 0;
      for (const Unit& unit : plans.train.program.units)
        packed += sign_bytes(unit.elements / ranks);
      const int64_t elements = padded(plans),
                    sent =
                        2 * (ranks - 1) * packed + (ranks - 1) * size_of(dtype) * elements / ranks;
      CHECK(sent_on(plans.train, kStateAxes) == sent);
      CHECK(sent_on(gathers, kStateAxes) ==
            sent + (ranks - 1) * (4 * elements + elements / 8) / ranks);
      const size_t units = plans.train.program.units.size();
      CHECK(count_ops(plans.train, OpKind::positive_bits) == 0);
      CHECK(count_ops(gathers, OpKind::positive_bits) == units);
      CHECK(count_ops(plans.train, OpKind::all_gather) == 2 * units);
      CHECK(count_ops(gathers, OpKind::all_gather) == 4 * units);
      for (int rank = 0; rank < ranks; ++rank)
        CHECK(comm_work(plan_of(job, rank).training(StepKind::whole_momentum)) ==
              comm_work(gathers));
    }
  Job job = one_bit_job(4);
  job.zero_stage = 1;
  CHECK(step_kinds(job) ==
        std::vector{StepKind::regular, StepKind::whole_gradients, StepKind::whole_momentum});
  CHECK(steps_text(job, StepKind::whole_gradients) == "steps 1 to 5");
  CHECK(steps_text(job, StepKind::whole_momentum) == "step 6, and the first of a later resume");
  CHECK(steps_text(job, StepKind::regular) == "from step 7 on");
  // Ranks gather once after they have begun, or resumed.
  for (const int64_t applied : {5, 9}) {
    CHECK(kind_of_step(job, applied, std::nullopt) == StepKind::whole_momentum);
    CHECK(kind_of_step(job, applied, StepKind::whole_gradients) == StepKind::whole_momentum);
    CHECK(kind_of_step(job, applied, StepKind::whole_momentum) == StepKind::regular);
    CHECK(kind_of_step(job, applied, StepKind::regular) == StepKind::regular);
  }
  CHECK(kind_of_step(job, 4, std::nullopt) == StepKind::whole_gradients);
  CHECK(kind_of_step(one_bit_job(4), 5, std::nullopt) == StepKind::regular);
  job = one_bit_job(1);
  job.zero_stage = 1;
  CHECK_FALSE(gathers_momentum(job));
}

TEST_CASE(
    "1-bit Adam at stage 1 has a part of masters and second moments, and all of the momentum") {
  for (const int64_t ranks : {2, 3, 4})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Job job = one_bit_job(static_cast<int>(ranks), dtype);
      const RankPlan whole = plan_of(job);
      job.zero_stage = 1;
      const RankPlan plans = plan_of(job);
      const int64_t n = padded(plans);
      // Returns the bytes of the buffers that are named so.
      const auto bytes = [&](const RankPlan& of, std::string_view name) {
        int64_t sum = 0;
        for (const Buffer& b : of.train.program.buffers)
          if (b.lifetime == Lifetime::persistent && b.parent == kNone && b.name.starts_with(name))
            sum += b.bytes();
        return sum;
      };
      const int64_t masters = dtype == DType::f32 ? 0 : 4 * n;
      CHECK(bytes(whole, "master:") == masters);
      CHECK(bytes(plans, "master:") == masters / ranks);
      CHECK(bytes(whole, "exp_avg_sq:") == 4 * n);
      CHECK(bytes(plans, "exp_avg_sq:") == 4 * n / ranks + n / 8);  // with the bits
      CHECK(bytes(whole, "exp_avg:") == 4 * n);
      CHECK(bytes(plans, "whole_exp_avg:") == 4 * n);
      CHECK(bytes(plans, "worker_error:") == 4 * n);
      CHECK(bytes(plans, "owner_error:") == 4 * n / ranks);
      const double saved = static_cast<double>((masters + 4 * n) * (ranks - 1) / ranks - n / 8);
      CHECK(static_cast<double>(bytes_of(whole, MemoryClass::optimizer) -
                                bytes_of(plans, MemoryClass::optimizer)) ==
            Approx(saved).epsilon(0.02));
      CHECK(whole.memory.total() > plans.memory.total());
    }
}

TEST_CASE("1-bit Lamb: steps of Lamb until freeze_step, then a step of each parameter") {
  Job job = one_bit_job(4);
  job.optimizer.kind = OptimizerKind::one_bit_lamb;
  job.optimizer.weight_decay = 0.1;
  const RankPlan plans = plan_of(job, 2);
  const Program& p = plans.train.program;
  const Plan& whole = plans.training(StepKind::whole_gradients);
  Job lamb = job;
  lamb.optimizer.kind = OptimizerKind::lamb;
  CHECK(comm_work(whole) == comm_work(plan_of(lamb, 2).train));
  const size_t units = p.units.size(), parameters = p.parameters.size();
  CHECK(count_ops(whole, OpKind::lamb_average) == units);
  CHECK(count_ops(whole, OpKind::frozen_lamb) == 0);
  for (const OpKind op : {OpKind::lamb_direction, OpKind::lamb, OpKind::lamb_average,
                          OpKind::all_reduce, OpKind::reduce_scatter})
    CHECK(count_ops(plans.train, op) == 0);
  for (const OpKind op : {OpKind::momentum_scale, OpKind::scaled_momentum,
                          OpKind::frozen_lamb_direction, OpKind::frozen_lamb})
    CHECK(count_ops(plans.train, op) == parameters);
  for (const OpKind op : {OpKind::lamb_factor, OpKind::quantize_signs, OpKind::all_to_all,
                          OpKind::requantize_signs, OpKind::all_gather})
    CHECK(count_ops(plans.train, op) == units);
  // Squares are added of the gradient and two measured losses of each unit, and of two directions of each parameter, by
  // slices.
  size_t pieces = 0;
  for (const Parameter& parameter : p.parameters)
    for (int rank = 0; rank < 4; ++rank) {
      const Unit& unit = p.units[static_cast<size_t>(parameter.unit)];
      pieces += common(owned_slice(unit, data_place(rank, 4)), elements_of(parameter)).size() > 0;
    }
  CHECK(pieces > parameters);
  CHECK(count_ops(plans.train, OpKind::sum_squares) == 5 * units + 2 * pieces);
  job.optimizer.weight_decay = 0;
  CHECK(count_ops(plan_of(job, 2).train, OpKind::sum_squares) == 5 * units);
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  CHECK(comm_work(plans.train) == comm_work(plan_of(job, 2).train));
}

TEST_CASE(
    "1-bit Lamb at stage 1: ranks also send the largest ratios and the norms of their slices") {
  for (const int64_t ranks : {2, 3, 4})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Job job = one_bit_job(static_cast<int>(ranks), dtype);
      job.optimizer.kind = OptimizerKind::one_bit_lamb;
      const RankPlan at_stage_0 = plan_of(job);
      job.zero_stage = 1;
      const RankPlan plans = plan_of(job);
      const Program& p = plans.train.program;
      Job lamb = job;
      lamb.optimizer.kind = OptimizerKind::lamb;
      CHECK(comm_work(plans.training(StepKind::whole_gradients)) == comm_work(plan_of(lamb).train));
      int64_t packed = 0, fresh = 0, scaled = 0;
      for (const Unit& unit : p.units) {
        packed += sign_bytes(unit.elements / ranks);
        fresh += p.at(p.find("exp_avg_sq_fresh:" + unit.name)).bytes();
        scaled += p.at(p.find("scaled_momentum:" + unit.name)).bytes();
      }
      const int64_t elements = padded(plans), found = 4 + 16;  // bytes of a parameter
      const int64_t sent = 2 * (ranks - 1) * packed +
                           (ranks - 1) * size_of(dtype) * elements / ranks +
                           (ranks - 1) * found * static_cast<int64_t>(p.parameters.size());
      CHECK(sent_on(plans.train, kStateAxes) == sent);
      CHECK(sent_on(plans.training(StepKind::whole_momentum), kStateAxes) ==
            sent + (ranks - 1) * (4 * elements + elements / 8) / ranks);
      CHECK(fresh == 4 * elements / ranks);
      CHECK(scaled == 4 * elements);
      CHECK(plans.memory.total() < at_stage_0.memory.total());
      for (int rank = 0; rank < ranks; ++rank)
        CHECK(comm_work(plan_of(job, rank).train) == comm_work(plans.train));
    }
}

TEST_CASE("1-bit Lamb keeps a fresh second moment, and three values of each parameter") {
  for (const int ranks : {1, 4}) {
    Job job = one_bit_job(ranks);
    job.optimizer.kind = OptimizerKind::one_bit_lamb;
    const RankPlan plans = plan_of(job, 0);
    const Program& p = plans.train.program;
    size_t of_parameters = 0;
    for (const CodecState& state : p.codec_state) {
      const auto parameter = std::ranges::find(p.parameters, state.name, &Parameter::name);
      if (state.per_rank) continue;
      REQUIRE(parameter != p.parameters.end());
      ++of_parameters;
      const bool fresh = state.slot == "exp_avg_sq_fresh";
      CHECK((fresh || state.slot == "lamb_average" || state.slot == "lamb_factor" ||
             state.slot == "momentum_scale"));
      CHECK(p.at(state.values).shape.elements() == (fresh ? parameter->shape.elements() : 1));
    }
    CHECK(of_parameters == 4 * p.parameters.size());
    CHECK(p.codec_state.size() == of_parameters + (ranks > 1 ? 2 * p.units.size() : 0));
  }
}
