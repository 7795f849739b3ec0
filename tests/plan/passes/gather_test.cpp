#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

TEST_CASE("at reuse distance 0 every block is gathered for its forward and for its backward") {
  const Plan plan = plan_of(sharded_job(3)).train;
  std::map<std::string, int> gathers;
  for (const size_t i : issues_of(plan, OpKind::all_gather))
    ++gathers[plan.program.at(op_at(plan, i).reads[0]).name];
  const int micro_batches = 2;
  CHECK(gathers["params:blocks.0"] == 2 * micro_batches);
  CHECK(gathers["params:blocks.3"] == 2 * micro_batches);
  CHECK(gathers["params:embedding"] == micro_batches);  // its backward reads no weight
  CHECK(gathers["params:head"] == micro_batches);       // its backward follows its forward
}

TEST_CASE("with DeepSpeed's limits a small model is gathered once a step and stays") {
  Job job = sharded_job(3);
  job.gather = {};
  const Plan plan = plan_of(job).train;
  CHECK(issues_of(plan, OpKind::all_gather).size() == plan.program.units.size());
  for (const size_t i : issues_of(plan, OpKind::all_gather))
    CHECK(op_at(plan, i).when == When::step_begin);
}

TEST_CASE("a reuse distance of one block keeps the newest block for its backward") {
  Job job = sharded_job(3);
  job.batch.accumulation = 1;
  const Plan apart = plan_of(job).train;
  const int64_t block = apart.program.units[1].elements;
  job.gather.max_reuse_distance = apart.program.units.back().elements;
  const Plan plan = plan_of(job).train;
  CHECK(issues_of(plan, OpKind::all_gather).size() + 1 ==
        issues_of(apart, OpKind::all_gather).size());
  // The limit on what is gathered at a time comes first.
  job.gather.max_live_elements = block;
  CHECK(issues_of(plan_of(job).train, OpKind::all_gather).size() ==
        issues_of(apart, OpKind::all_gather).size());
}

TEST_CASE("gathers run ahead of their use by one unit, where overlap and limits allow it") {
  Job job = sharded_job(3);
  job.model.set("n_layer", 12);
  // Instructions of other units between a gather and the first use of what it brings.
  const auto ahead = [&] {
    const Plan plan = plan_of(job).train;
    int count = 0;
    for (const size_t i : issues_of(plan, OpKind::all_gather)) {
      const BufferId gathered = plan.program.root(op_at(plan, i).writes[0]);
      const auto uses = [&](size_t k) {
        const auto& reads = op_at(plan, k).reads;
        return std::any_of(reads.begin(), reads.end(), [&](BufferId id) {
          return id != kNone && plan.program.root(id) == gathered;
        });
      };
      size_t k = i + 1;
      while (!uses(k)) ++k;
      count += k > i + 2;
    }
    return count;
  };
  const int all = ahead();
  CHECK(all > 40);
  job.gather.prefetch_elements = 10;
  CHECK(ahead() == 0);
  job.gather.prefetch_elements = 50'000'000;
  job.gather.max_live_elements = 10;
  CHECK(ahead() == 0);
  job.gather.max_live_elements = 1'000'000'000;
  job.overlap_comm = false;
  CHECK(ahead() == 0);
}

TEST_CASE("units of small parameters stay gathered, up to the model's threshold") {
  Job job = sharded_job(3);
  job.model = BenchmarkModel{.n_layer = 6, .in_size = 8, .hidden_size = 8, .out_size = 8};
  job.gather.param_persistence = 64;
  const auto kept = [&] {
    const Plan plan = plan_of(job).train;
    int count = 0;
    for (const Instruction& op : plan.program.instructions)
      count += op.op == OpKind::all_gather && op.when == When::step_begin;
    return count;
  };
  CHECK(kept() == 6);
  job.gather.param_persistence = 63;
  CHECK(kept() == 0);
  job.gather.param_persistence = 64;
  job.gather.model_persistence = 3 * plan_of(job).train.program.units[0].elements;
  CHECK(kept() == 3);
  // Where tensor ranks share a layer, the elements that a rank has count.
  job.gather.model_persistence = INT64_MAX;
  job.tensor_ranks = 2;
  job.gather.param_persistence = 32;
  const int of_parts = kept();
  job.gather.param_persistence = 31;
  CHECK(kept() < of_parts);
}
