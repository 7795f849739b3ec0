// Steps of optimizers whose ranks keep their gradients and send signs.
#include <catch2/catch.hpp>
#include <map>

#include "runtime/ir/quantized.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

constexpr OptimizerKind kAdam = OptimizerKind::one_bit_adam, kLamb = OptimizerKind::one_bit_lamb,
                        kZeroOne = OptimizerKind::zero_one_adam;
constexpr StepKind kRegular = StepKind::regular, kWhole = StepKind::whole_gradients,
                   kSigns = StepKind::gradient_signs, kLocal = StepKind::local,
                   kGathers = StepKind::whole_momentum;
using Kinds = std::vector<StepKind>;

Job job_of(OptimizerKind kind, int64_t ranks, DType dtype = DType::bf16, int stage = 0) {
  Job job = sharded_job(0, static_cast<int>(ranks));
  job.dtype = job.wire_dtype = dtype;
  job.model.set("n_embd", 64);
  job.zero_stage = stage;
  job.optimizer.kind = kind;
  job.optimizer.freeze_step = 5;
  job.optimizer.zero_one = {.var_freeze_step = 10,
                            .var_update_scaler = 3,
                            .local_step_scaler = 2,
                            .local_step_clipper = 4};
  return job;
}

// Returns the plans of the optimizer without signs.
RankPlan plain_plans(Job job, int rank = 0) {
  job.optimizer.kind = job.optimizer.kind == kLamb ? OptimizerKind::lamb : OptimizerKind::adam;
  return plan_of(job, rank);
}

// Calls f(ranks, dtype) for several of both.
template <class F>
void for_ranks(const F& f) {
  for (const int64_t ranks : {2, 3, 4, 8})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(ranks, name_of(dtype));
      f(ranks, dtype);
    }
}

// Returns the bytes that signs of all units take, in two hops.
int64_t sign_traffic(const RankPlan& plans, int64_t ranks) {
  int64_t packed = 0;
  for (const Unit& unit : plans.train.program.units) packed += sign_bytes(unit.elements / ranks);
  return 2 * (ranks - 1) * packed;
}

// Checks how many there are of each op, of whose numbers `counts` has a list.
using Counts = std::map<size_t, std::vector<OpKind>>;
void check_ops(const Plan& plan, const Counts& counts) {
  for (const auto& [count, ops] : counts)
    for (const OpKind op : ops) {
      CAPTURE(name_of(op), name_of(plan.kind));
      CHECK(count_ops(plan, op) == count);
    }
}

// Returns the bytes of the persistent buffers whose names begin so.
int64_t bytes_named(const RankPlan& of, std::string_view name) {
  int64_t sum = 0;
  for (const Buffer& b : of.train.program.buffers)
    if (b.lifetime == Lifetime::persistent && b.parent == kNone && b.name.starts_with(name))
      sum += b.bytes();
  return sum;
}

}  // namespace

TEST_CASE("1-bit optimizers: gradients are added until freeze_step, then no more") {
  for (const OptimizerKind kind : {kAdam, kLamb}) {
    const Job job = job_of(kind, 4);
    CHECK(kind_of_step(job, 4, kWhole) == kWhole);
    CHECK(kind_of_step(job, 5, kWhole) == kRegular);
    CHECK(kind_of_step(job, 5, std::nullopt) == kRegular);
    CHECK(steps_text(job, kWhole) == "steps 1 to 5");
    CHECK(steps_text(job, kRegular) == "from step 6 on");
    // One rank freezes too, so that it is the same training.
    CHECK(step_kinds(job_of(kind, 1)) == Kinds{kRegular, kWhole});
    const Job sharded = job_of(kind, 4, DType::bf16, 1);
    CHECK(step_kinds(sharded) == Kinds{kRegular, kWhole, kGathers});
    CHECK(steps_text(sharded, kWhole) == "steps 1 to 5");
    CHECK(steps_text(sharded, kGathers) == "step 6, and the first of a later resume");
    CHECK(steps_text(sharded, kRegular) == "from step 7 on");
    CHECK(kind_of_step(sharded, 4, std::nullopt) == kWhole);
    // Ranks gather once after they have begun, or resumed.
    for (const int64_t applied : {5, 9}) {
      CHECK(kind_of_step(sharded, applied, std::nullopt) == kGathers);
      CHECK(kind_of_step(sharded, applied, kWhole) == kGathers);
      CHECK(kind_of_step(sharded, applied, kGathers) == kRegular);
      CHECK(kind_of_step(sharded, applied, kRegular) == kRegular);
    }
    CHECK(gathers_momentum(sharded));
    CHECK_FALSE(gathers_momentum(job));
    CHECK_FALSE(gathers_momentum(job_of(kind, 1, DType::bf16, 1)));
    CHECK_FALSE(gathers_momentum(job_of(OptimizerKind::adam, 4, DType::bf16, 1)));
  }
}

TEST_CASE("0/1 Adam has four kinds of steps, or those that its constants leave") {
  Job job = job_of(kZeroOne, 4);
  CHECK(step_kinds(job) == Kinds{kRegular, kWhole, kSigns, kLocal});
  Kinds kinds;
  for (int64_t applied = 0; applied < 16; ++applied)
    kinds.push_back(kind_of_step(job, applied, kRegular));
  CHECK(kinds == Kinds{kWhole, kWhole, kWhole, kSigns, kWhole, kSigns, kWhole, kSigns, kWhole,
                       kSigns,  //
                       kRegular, kRegular, kLocal, kRegular, kLocal, kLocal});
  CHECK(steps_text(job, kWhole) == "steps 1 to 3, and up to 10 each 2nd, 4th, ...");
  CHECK(steps_text(job, kSigns) == "the other steps up to 10");
  CHECK(steps_text(job, kRegular) == "from step 11 on, at intervals of 1 to 4");
  CHECK(steps_text(job, kLocal) == "the other steps from 11 on");
  CHECK(step_kinds(job_of(kZeroOne, 1)).size() == 4);  // so that it is the same training
  job.optimizer.zero_one.var_update_scaler = 10;
  job.optimizer.zero_one.local_step_clipper = 1;
  CHECK(step_kinds(job) == Kinds{kRegular, kWhole});
  CHECK(steps_text(job, kWhole) == "steps 1 to 10");
  CHECK(steps_text(job, kRegular) == "from step 11 on");
  const std::string text = step_kinds_text(job_of(kZeroOne, 2), plan_of(job_of(kZeroOne, 2)));
  for (const char* name : {"regular", "whole gradients", "gradient signs", "local"})
    CHECK(text.find(name) != std::string::npos);
}

TEST_CASE("1-bit Adam: what its steps do") {
  const Job job = job_of(kAdam, 4);
  const RankPlan plans = plan_of(job);
  const Plan& whole = plans.training(kWhole);
  CHECK(op_names(whole, "step") == op_names(plain_plans(job).train, "step"));
  const size_t units = plans.train.program.units.size();
  check_ops(plans.train, {{0, {OpKind::all_reduce, OpKind::cast, OpKind::adam}},
                          {units,
                           {OpKind::local_momentum, OpKind::quantize_signs, OpKind::all_to_all,
                            OpKind::requantize_signs, OpKind::all_gather}},
                          // The sum, and to measure what is lost the rank's own part in each hop.
                          {3 * units, {OpKind::dequantize_signs}},
                          {count_ops(whole, OpKind::adam), {OpKind::frozen_adam}}});
}

TEST_CASE("1-bit Lamb: steps of Lamb until freeze_step, then a step of each parameter") {
  Job job = job_of(kLamb, 4);
  job.optimizer.weight_decay = 0.1;
  const RankPlan plans = plan_of(job, 2);
  const Program& p = plans.train.program;
  const size_t units = p.units.size(), parameters = p.parameters.size();
  // Squares are added of the gradient and two measured losses of each unit, and of two directions of each parameter, by
  // slices.
  size_t pieces = 0;
  for (const Parameter& parameter : p.parameters)
    for (int rank = 0; rank < 4; ++rank) {
      const Unit& unit = p.units[static_cast<size_t>(parameter.unit)];
      pieces += common(owned_slice(unit, data_place(rank, 4)), elements_of(parameter)).size() > 0;
    }
  CHECK(pieces > parameters);
  check_ops(plans.training(kWhole),
            {{0, {OpKind::frozen_lamb_direction}}, {units, {OpKind::lamb_average}}});
  check_ops(
      plans.train,
      {{0,
        {OpKind::lamb_direction, OpKind::lamb_average, OpKind::all_reduce, OpKind::reduce_scatter}},
       {parameters,
        {OpKind::momentum_scale, OpKind::local_momentum, OpKind::frozen_lamb_direction,
         OpKind::lamb}},
       {units,
        {OpKind::lamb_factor, OpKind::quantize_signs, OpKind::all_to_all, OpKind::requantize_signs,
         OpKind::all_gather}},
       {5 * units + 2 * pieces, {OpKind::sum_squares}}});
  job.optimizer.weight_decay = 0;
  check_ops(plan_of(job, 2).train, {{5 * units, {OpKind::sum_squares}}});
  CHECK(comm_work(plans.train) == comm_work(plan_of(job_of(kAdam, 4), 2).train));
}

TEST_CASE("0/1 Adam: what the steps of each kind do") {
  const RankPlan plans = plan_of(job_of(kZeroOne, 4));
  const Plan &signs = plans.training(kSigns), &local = plans.training(kLocal);
  const size_t units = plans.train.program.units.size(),
               runs = count_ops(plans.training(kWhole), OpKind::adam);
  check_ops(signs, {{0, {OpKind::all_reduce, OpKind::adam}},
                    {units, {OpKind::quantize_signs}},
                    {runs, {OpKind::frozen_adam}}});
  check_ops(plans.train, {{units, {OpKind::local_momentum}},
                          {runs, {OpKind::local_weights, OpKind::end_local_steps}}});
  check_ops(local, {{0, {OpKind::quantize_signs, OpKind::end_local_steps}},
                    {units, {OpKind::local_momentum}},
                    {runs, {OpKind::local_weights}}});
  // Weights are made before they are packed for products.
  bool packed = false;
  for (const Instruction& op : local.program.instructions) {
    packed = packed || op.op == OpKind::pack_weight;
    if (op.op == OpKind::local_weights) CHECK_FALSE(packed);
  }
}

TEST_CASE("1-bit Adam: a unit's signs travel while its neighbours are packed, if they may") {
  Job job = job_of(kAdam, 2);
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

TEST_CASE("1-bit optimizers: bytes are those of gradients, of signs in two hops, or none") {
  for_ranks([](int64_t ranks, DType dtype) {
    for (const OptimizerKind kind : {kAdam, kLamb, kZeroOne}) {
      const Job job = job_of(kind, ranks, dtype);
      const RankPlan plans = plan_of(job);
      const Plan& whole = plans.training(kWhole);
      CHECK(comm_work(whole) == comm_work(plain_plans(job).train));
      if (kind != kLamb)  // which sends square sums, too
        CHECK(sent_on(whole, kStateAxes) ==
              (ranks - 1) * size_of(dtype) * padded(plans) / ranks);  // twice: an all-reduce
      CHECK(sent_on(plans.train, kStateAxes) == sign_traffic(plans, ranks));
      if (kind == kZeroOne) {
        CHECK(sent_on(plans.training(kSigns), kStateAxes) == sign_traffic(plans, ranks));
        CHECK(wire_bytes(plans.training(kLocal)) == 0);
      }
      if (ranks == 2)
        CHECK(static_cast<double>(wire_bytes(plans.train)) /
                  static_cast<double>(wire_bytes(whole)) ==
              Approx((1 + 32.0 / 512) / (8 * size_of(dtype))).epsilon(0.02));
      for (int rank = 0; rank < ranks; ++rank)
        CHECK(comm_work(plan_of(job, rank).train) == comm_work(plans.train));
    }
  });
}

TEST_CASE("1-bit optimizers at stage 1: a step gathers the momentum, others send signs, weights") {
  for_ranks([](int64_t ranks, DType dtype) {
    for (const OptimizerKind kind : {kAdam, kLamb}) {
      const Job job = job_of(kind, ranks, dtype, 1);
      const RankPlan plans = plan_of(job);
      const Plan& gathers = plans.training(kGathers);
      CHECK(comm_work(plans.training(kWhole)) == comm_work(plain_plans(job).train));
      const size_t units = plans.train.program.units.size();
      const auto parameters = static_cast<int64_t>(plans.train.program.parameters.size());
      // 1-bit Lamb also sends the largest ratios and the norms of slices, of each parameter.
      const int64_t elements = padded(plans), found = kind == kLamb ? (4 + 16) * parameters : 0;
      const int64_t sent = sign_traffic(plans, ranks) +
                           (ranks - 1) * size_of(dtype) * elements / ranks + (ranks - 1) * found;
      CHECK(sent_on(plans.train, kStateAxes) == sent);
      CHECK(sent_on(gathers, kStateAxes) ==
            sent + (ranks - 1) * (4 * elements + elements / 8) / ranks);
      const size_t gathered = (kind == kLamb ? 4 : 2) * units;
      check_ops(plans.train, {{0, {OpKind::positive_bits}}, {gathered, {OpKind::all_gather}}});
      check_ops(gathers,
                {{units, {OpKind::positive_bits}}, {gathered + 2 * units, {OpKind::all_gather}}});
      for (int rank = 0; rank < ranks; ++rank)
        for (const StepKind step : {kRegular, kGathers})
          CHECK(comm_work(plan_of(job, rank).training(step)) == comm_work(plans.training(step)));
    }
  });
}

TEST_CASE("1-bit optimizers at stage 1 have a part of masters, and all of what travels") {
  for_ranks([](int64_t ranks, DType dtype) {
    const int64_t master_bytes = dtype == DType::f32 ? 0 : 4;
    for (const OptimizerKind kind : {kAdam, kLamb}) {
      const RankPlan whole = plan_of(job_of(kind, ranks, dtype)),
                     plans = plan_of(job_of(kind, ranks, dtype, 1));
      const int64_t n = padded(plans), masters = master_bytes * padded(whole);
      CHECK(bytes_named(whole, "master:") == masters);
      CHECK(bytes_named(plans, "master:") == masters / ranks);
      CHECK(bytes_named(whole, "exp_avg_sq:") == 4 * n);
      CHECK(bytes_named(plans, "exp_avg_sq:") == 4 * n / ranks + n / 8);  // with the bits
      CHECK(bytes_named(whole, "exp_avg:") == 4 * n);
      CHECK(bytes_named(plans, kind == kLamb ? "scaled_momentum:" : "whole_exp_avg:") == 4 * n);
      CHECK(bytes_named(plans, "exp_avg_sq_fresh:") == (kind == kLamb ? 4 * n / ranks : 0));
      CHECK(bytes_named(plans, "worker_error:") == 4 * n);
      CHECK(bytes_named(plans, "owner_error:") == 4 * n / ranks);
      CHECK(whole.memory.total() > plans.memory.total());
      if (kind == kLamb) continue;
      const double saved = static_cast<double>((masters + 4 * n) * (ranks - 1) / ranks - n / 8);
      CHECK(static_cast<double>(bytes_of(whole, MemoryClass::optimizer) -
                                bytes_of(plans, MemoryClass::optimizer)) ==
            Approx(saved).epsilon(0.02));
    }
  });
}

TEST_CASE("1-bit optimizers keep what packing loses, and state of parameters beside their slots") {
  for (const OptimizerKind kind : {kAdam, kLamb, kZeroOne})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t ranks : {1, 4}) {
        CAPTURE(static_cast<int>(kind), name_of(dtype), ranks);
        const RankPlan plans = plan_of(job_of(kind, ranks, dtype), static_cast<int>(ranks / 2));
        const Program& p = plans.train.program;
        std::map<std::string, size_t> found;
        for (const CodecState& state : p.codec_state) {
          CAPTURE(state.name, state.slot);
          ++found[state.slot];
          const int64_t kept = p.at(state.values).shape.elements();
          if (state.slot.ends_with("_error")) {
            // Of all parts, and of the rank's own.
            const auto unit = std::ranges::find(p.units, state.name, &Unit::name);
            REQUIRE(unit != p.units.end());
            CHECK(kept * (state.slot == "worker_error" ? 1 : 4) == unit->elements);
            CHECK((state.per_rank && !state.mean));
            continue;
          }
          const auto parameter = std::ranges::find(p.parameters, state.name, &Parameter::name);
          REQUIRE(parameter != p.parameters.end());
          const bool of_elements =
              state.slot.starts_with("local_") || state.slot.ends_with("fresh");
          CHECK(kept == (of_elements ? parameter->shape.elements() : 1));
          CHECK(state.per_rank == (kind == kZeroOne));
          CHECK(state.mean == state.per_rank);
        }
        std::map<std::string, size_t> expected;
        if (ranks > 1)
          expected = {{"worker_error", p.units.size()}, {"owner_error", p.units.size()}};
        if (kind == kLamb)
          for (const char* slot :
               {"exp_avg_sq_fresh", "lamb_average", "lamb_factor", "momentum_scale"})
            expected[slot] = p.parameters.size();
        if (kind == kZeroOne)
          for (const char* slot : {"local_momentum", "local_sum"})
            expected[slot] = p.parameters.size();
        CHECK(found == expected);
        for (const Unit& unit : p.units)
          if (kind == kZeroOne) {
            CHECK(p.find("master:" + unit.name) != kNone);
            CHECK(p.find("master:" + unit.name) != p.find("params:" + unit.name));
          }
      }
}
