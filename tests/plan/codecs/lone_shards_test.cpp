// Quantized weights where a shard is one rank's, which has nobody to gather from, and a rank without peers.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/plan/proof/verify.h"
#include "runtime/plan/report/print.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// Each of the ranks has all parameters.
Job lone_shards_job(int ranks, bool packed = true) {
  Job job = sharded_job(3, ranks);
  job.shards.ranks = 1;
  job.dtype = job.wire_dtype = DType::bf16;
  job.model.set("vocab_size", 65);
  job.model.set("n_embd", 64);
  job.quantize.weights = packed;
  return job;
}

bool is_packed_shard(const Plan& plan, BufferId id) {
  return plan.program.at(plan.program.root(id)).name.starts_with("shard:");
}

}  // namespace

TEST_CASE("quantized weights: ranks that each have all parameters exchange them packed, once") {
  for (const int64_t reuse : {0, 1'000'000'000}) {
    Job job = lone_shards_job(4);
    job.eval_interval = 1;
    job.gather.max_reuse_distance = reuse;
    const RankPlan rank = plan_of(job, 1);
    for (const Plan* plan : {&rank.train, &rank.validate}) {
      const Program& p = plan->program;
      const size_t units = p.units.size();
      CHECK(count_ops(*plan, OpKind::quantize) == units);
      CHECK(count_ops(*plan, OpKind::all_gather) == units);
      for (const Instruction& op : p.instructions) {
        if (op.op == OpKind::all_gather) {
          CHECK(op.when == When::step_begin);
          CHECK(is_packed_shard(*plan, op.writes[0]));
        }
        if (op.op == OpKind::dequantize) CHECK(is_packed_shard(*plan, op.reads[0]));
      }
    }
    CHECK(count_ops(rank.train, OpKind::error_squares) == rank.train.program.units.size());
  }
  // What is unpacked counts as gathered.
  Job job = lone_shards_job(4);
  job.overlap_comm = false;
  int64_t largest = 0;
  for (const Unit& unit : plan_of(job).train.program.units)
    largest = std::max(largest, unit.elements);
  job.gather.max_live_elements = largest;
  Plan plan = plan_of(job).train;
  CHECK_NOTHROW(verify(plan));
  job.gather.max_live_elements = job.gather.max_reuse_distance = 1'000'000'000;
  plan = plan_of(job).train;
  plan.max_live_elements = largest;
  CHECK_THROWS_AS(verify(plan), InternalError);
}

TEST_CASE(
    "quantized weights: log and plan say how replicas of one rank send, and that one sends "
    "nothing") {
  Job job = lone_shards_job(4);
  const RankPlan plan = plan_of(job);
  const std::vector<int> hosts{0, 1, 2, 3};
  const std::string line = codec_line(job, plan.train, hosts, fake_inputs());
  CHECK_THAT(line, Catch::StartsWith("parameters travel as int8 in blocks of 256 once a step, as "
                                     "each rank has all of them; rank 1 sends "));
  CHECK(sent_bytes(plan.train, hosts).host <
        sent_bytes(plan_of(lone_shards_job(4, false)).train, hosts).host);
  CHECK_THAT(plan_to_text(plan, "t"),
             Catch::Contains("4 data-parallel ranks are replicas of 1: each has all parameters") &&
                 Catch::Contains("each rank gets all parameters as int8 once a step"));
  job = lone_shards_job(1);
  job.quantize.gradients = true;
  CHECK(codec_line(job, plan_of(job, 0).train, std::vector{0}, fake_inputs()) ==
        "no effect of zero_quantized_weights, zero_quantized_gradients: one rank sends neither "
        "parameters nor gradients to others");
}
