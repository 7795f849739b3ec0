#include "runtime/plan/settings/gather_line.h"

#include <catch2/catch.hpp>

#include "launcher/implementations.h"
#include "runtime/core/text.h"
#include "runtime/plan/mesh.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

Job divided_job() {
  Job job;
  job.ranks = job.tensor_ranks = 2;
  job.model = GptLite{.n_layer = 2, .n_embd = 64, .n_head = 2, .block_size = 64, .vocab_size = 100};
  job.batch = {.train_batch = 8, .micro_batch = 8, .accumulation = 1};
  return job;
}

// Returns what a line says of a rank's plan: "1.2 GB a rank and 30 MB sent a step".
std::string costs_of(Job job, GatherAgain gathers) {
  job.gather_again = gathers;
  const RankPlan plan = make_rank_plan(job, place_of(job, 1), plan_inputs(job));
  return bytes_text(static_cast<double>(plan.memory.total())) + " a rank and " +
         bytes_text(static_cast<double>(wire_bytes(plan.train))) + " sent a step";
}

TEST_CASE("the line about gathered rows has the memory and the traffic of both ways") {
  Job job = divided_job();
  const std::string kept = costs_of(job, GatherAgain::off), again = costs_of(job, GatherAgain::on);
  CHECK(kept != again);
  const std::string both = kept + " where they are kept, " + again +
                           " where they are gathered again (dstrain.gather_again)\n";
  CHECK(gather_line(job, 1, plan_inputs(job)) ==
        "rows that tensor ranks gather are kept for the backward pass: " + both);
  job.gather_again = GatherAgain::on;
  CHECK(gather_line(job, 1, plan_inputs(job)) ==
        "rows that tensor ranks gather are gathered again in the backward pass: " + both);
}

TEST_CASE("there is no line about gathered rows without them, or where layers are computed again") {
  Job job = divided_job();
  job.recompute = {RecomputeMode::interval, 1};
  CHECK(gather_line(job, 0, plan_inputs(job)).empty());
  job.recompute = {};
  job.tensor_ranks = 1;
  job.batch.train_batch = 16;
  CHECK(gather_line(job, 0, plan_inputs(job)).empty());
}

}  // namespace
}  // namespace dstrain
