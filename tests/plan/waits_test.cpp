#include "runtime/plan/waits.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>

#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("ranks of a sharded job have the same collectives in the same order") {
  const Job job = sharded_job(3);
  CHECK(comm_work(plan_of(job, 1).train) == comm_work(plan_of(job, 0).train));
}

TEST_CASE(
    "an instruction waits for no collective to come, and never for fewer than the one before") {
  for (const int stage : {0, 1, 2, 3}) {
    const Plan plan = plan_of(sharded_job(stage)).train;
    int32_t started = 0, before = 0;
    for (size_t i = 0; i < plan.order.size(); ++i) {
      CHECK(plan.waits[i] <= started);
      CHECK(plan.waits[i] >= before);
      before = plan.waits[i];
      started += is_collective(op_at(plan, i).op);
    }
    CHECK(started == count_collectives(plan)[kStateChannel]);
  }
}

TEST_CASE("without overlap every instruction waits for all collectives before it") {
  Plan plan = plan_of(sharded_job(3)).train;
  order_communication(plan, false, false);
  int32_t started = 0;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    if (is_collective(op_at(plan, i).op))
      ++started;
    else
      CHECK(plan.waits[i] == started);
  }
}

TEST_CASE("with overlap the first use of a gather waits for it, and what stands between does not") {
  Job job = sharded_job(3);
  job.model.set("n_layer", 12);
  const Plan plan = plan_of(job).train;
  int32_t number = 0;
  int beside = 0;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    if (!is_collective(op_at(plan, i).op)) continue;
    ++number;
    if (op_at(plan, i).op != OpKind::all_gather) continue;
    const BufferId gathered = plan.program.root(op_at(plan, i).writes[0]);
    const auto uses = [&](size_t k) {
      const auto& reads = op_at(plan, k).reads;
      return std::any_of(reads.begin(), reads.end(), [&](BufferId id) {
        return id != kNone && plan.program.root(id) == gathered;
      });
    };
    size_t k = i + 1;
    for (; !uses(k); ++k) beside += plan.waits[k] < number;
    CHECK(plan.waits[k] >= number);
  }
  CHECK(beside > 40);
}

// The sums of input gradients over a tensor group: of the first products of attention and of the MLP, and of the head.
TEST_CASE("sums of input gradients over a tensor group travel beside a weight gradient's product") {
  for (const auto& [again, all, tensor] : {std::tuple{GatherAgain::off, true, false},
                                           {GatherAgain::off, false, true},
                                           {GatherAgain::on, true, false},
                                           {GatherAgain::on, false, true},
                                           {GatherAgain::off, false, false}})
    for (const int zero_stage : {0, 3}) {
      Job job = sharded_job(zero_stage, 4);
      job.tensor_ranks = 2;
      job.gather_again = again;
      job.overlap_comm = all;
      job.overlap_tensor = tensor;
      CAPTURE(all, tensor, zero_stage, again == GatherAgain::on);
      const Plan plan = plan_of(job).train;
      const auto channel = static_cast<size_t>(channel_of(plan.place, Axis::tensor));
      const auto waits = [&](size_t i) {
        return plan.waits[i * static_cast<size_t>(plan.channels) + channel];
      };
      int32_t number = 0;
      int sums = 0, gathers = 0;
      for (size_t i = 0; i < plan.order.size(); ++i) {
        const Instruction& op = op_at(plan, i);
        if (!is_collective(op.op) || static_cast<size_t>(op.channel) != channel) continue;
        ++number;
        if (op.phase != Phase::backward) continue;
        const bool sum =
            op.op == OpKind::reduce_scatter && op_at(plan, i - 1).op == OpKind::linear_input_grad;
        const bool gather = plan.program.at(op.writes[0]).name.starts_with("re:gathered:");
        if (!sum && !gather) continue;
        int products = 0;
        for (size_t k = i + 1; waits(k) < number; ++k)
          products +=
              op_at(plan, k).op == (sum ? OpKind::linear_weight_grad : OpKind::linear_input_grad);
        CHECK(products == (all || tensor ? 1 : 0));
        (sum ? sums : gathers) += 1;
      }
      const int micro_batches = 2, products = 4 * 2 + 1;
      CHECK(sums == micro_batches * products);
      CHECK(gathers == (again == GatherAgain::on ? micro_batches * products : 0));
    }
}

TEST_CASE(
    "the sum of half of a second product's columns travels beside the product of the other half") {
  for (const bool tensor : {false, true})
    for (const int zero_stage : {0, 3}) {
      Job job = sharded_job(zero_stage, 4);
      job.tensor_ranks = 2;
      job.overlap_comm = false;
      job.overlap_tensor = tensor;
      job.recompute = {zero_stage == 3 ? RecomputeMode::interval : RecomputeMode::none, 1};
      CAPTURE(tensor, zero_stage);
      const Plan plan = plan_of(job).train;
      const Program& p = plan.program;
      const auto channel = static_cast<size_t>(channel_of(plan.place, Axis::tensor));
      int32_t number = 0;
      int halves = 0, joined = 0;
      for (size_t i = 0; i < plan.order.size(); ++i) {
        const Instruction& op = op_at(plan, i);
        joined += op.op == OpKind::join_columns;
        if (!is_collective(op.op) || static_cast<size_t>(op.channel) != channel) continue;
        ++number;
        if (op.op != OpKind::reduce_scatter || !p.at(op.reads[0]).name.starts_with("half0:"))
          continue;
        ++halves;
        const Instruction& other = op_at(plan, i + 1);
        CHECK(other.op == OpKind::linear);
        CHECK(p.at(other.writes[0]).name.starts_with("half1:"));
        CHECK(p.at(other.reads[1]).shape[0] * 2 == 32);  // rows of its weight, of 32
        CHECK(plan.waits[(i + 1) * static_cast<size_t>(plan.channels) + channel] < number);
      }
      // Each of 4 layers has two such products, of attention and of the MLP. Where layers are computed again these products
      // are, too, but for the last one of a layer, so there are more.
      const int micro_batches = 2;
      CHECK(halves == joined);
      CHECK(halves >= (tensor ? micro_batches * 4 * 2 : 0));
      CHECK((halves > 0) == tensor);
    }
}

TEST_CASE("the executor's own work between ranks waits for every collective before it") {
  const Plan plan = plan_of(sharded_job(2)).train;
  int32_t started = 0;
  int seen = 0;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const OpRule& rule = rule_of(op_at(plan, i).op);
    if (rule.done_by == DoneBy::collective) {
      ++started;
    } else if (rule.queue == Queue::comm) {
      CHECK(plan.waits[i] == started);
      ++seen;
    }
  }
  CHECK(seen == 2);  // reduce_counts, finish_gradients
}
