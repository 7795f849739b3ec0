#include "runtime/plan/estimates/offload_cost.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/plan/stage_plans.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

constexpr int64_t kMicroTokens = 64;

Job job_of(int64_t micros, OffloadTo optimizer) {
  Job job = sharded_job(3);
  job.model.set("n_layer", 6);
  job.batch = {2 * micros * job.ranks, 2, micros};
  job.offload.optimizer = optimizer;
  return job;
}

OffloadCost cost_of(const Job& job, DeviceChoice device = DeviceChoice::cpu) {
  return offload_cost(plan_of(job).train, rates_of(device), kMicroTokens);
}

// Returns the speed over that without offload, by hand.
double speed(const OffloadCost& cost) {
  const double end = std::max({cost.copies_at_end, cost.disk_at_end, cost.update_on_host});
  return (cost.computing + cost.update_on_device) / (std::max(cost.computing, cost.beside) + end);
}

}  // namespace

TEST_CASE("offload cost: nothing is moved without offload, and nothing said") {
  const OffloadCost cost = cost_of(job_of(2, OffloadTo::none));
  CHECK(!cost.moves_anything());
  CHECK(offload_text(cost, rates_of(DeviceChoice::cpu), DType::f32).empty());
}

TEST_CASE("offload cost: bytes by direction are those of the slices") {
  for (const int64_t micros : {2, 5}) {
    const Job job = job_of(micros, OffloadTo::cpu);
    const RankPlan rank = plan_of(job);
    const OffloadCost cost = cost_of(job);
    const auto slice = static_cast<double>(padded(rank) / job.ranks);
    const auto units = static_cast<double>(rank.train.program.units.size());
    CHECK(cost.to_host == static_cast<double>(micros) * slice * 4);  // sums of gradients
    CHECK(cost.to_device == slice * 4 + units * 8);  // parameters, and the sums of squares
    CHECK(cost.disk_read + cost.disk_written == 0);
    CHECK(cost.update_on_host > 0);
    CHECK(cost.tokens == micros * kMicroTokens);
  }
  const Job job = job_of(1, OffloadTo::nvme);
  const RankPlan rank = plan_of(job);
  const OffloadCost cost = cost_of(job);
  const auto slice = static_cast<double>(padded(rank) / job.ranks);
  CHECK(cost.disk_written == slice * 16);  // masters, moments, gradients
  CHECK(cost.disk_read == cost.disk_written);
  CHECK(cost.disk_at_end > cost.copies_at_end);
}

TEST_CASE("offload cost: the break-even is the smallest number of micro-batches that suffices") {
  for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
    const std::optional<int64_t> tokens = cost_of(job_of(2, to)).break_even_tokens;
    CAPTURE(static_cast<int>(to));
    REQUIRE(tokens);
    const int64_t micros = *tokens / kMicroTokens;
    if (to == OffloadTo::nvme) REQUIRE(micros > 3);
    if (micros < 3) {  // steps of one micro-batch are planned differently
      CHECK(speed(cost_of(job_of(2, to))) >= kOffloadBreakEven);
      continue;
    }
    // The estimate does not depend on the plan that it is made from, but on what a micro-batch does.
    CHECK(cost_of(job_of(micros, to)).break_even_tokens == tokens);
    CHECK(speed(cost_of(job_of(micros, to))) >= kOffloadBreakEven);
    CHECK(speed(cost_of(job_of(micros - 1, to))) < kOffloadBreakEven);
  }
}

TEST_CASE("offload cost: there is no break-even where a micro-batch moves more than it computes") {
  const OffloadCost cost = cost_of(job_of(8, OffloadTo::cpu), DeviceChoice::cuda);
  CHECK(!cost.break_even_tokens);
  CHECK(cost.computing < kOffloadBreakEven * cost.beside);
}

TEST_CASE("offload cost: the text says the rates, and whether the step is beyond the break-even") {
  OffloadCost cost{.to_host = 4e6, .disk_read = 3e9, .tokens = 100};
  const auto text = [&] { return offload_text(cost, rates_of(DeviceChoice::cpu), DType::f32); };
  CHECK(text().find("break-even: none with micro-batches of this size") != std::string::npos);
  cost.break_even_tokens = 7000;
  CHECK(text().find("break-even: from 7000 tokens a step on, 0.90 or more of the speed without "
                    "offload; this step has 100") != std::string::npos);
  CHECK(text().find("0.25 TFLOP/s") != std::string::npos);
  CHECK(text().find("2 GB/s of disk") != std::string::npos);
}
