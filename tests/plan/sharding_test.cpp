// ZeRO in the plan: what is held where, what is gathered when, and what verify says to broken plans.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/print.h"
#include "tests/support/fake_library.h"

using namespace dstrain;

namespace {

Job job_at(int stage, int ranks = 4) {
  Job job;
  job.model = {.n_layer = 4, .n_embd = 32, .n_head = 2, .block_size = 8, .vocab_size = 17};
  job.ranks = ranks;
  job.batch = {2 * 2 * ranks, 2, 2};
  job.zero_stage = stage;
  job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
  job.overlap_comm = true;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  return job;
}

RankPlan plan_of(const Job& job, int rank = 1) {
  return make_rank_plan(job, {rank, job.ranks}, fake_inputs());
}

const Instruction& op_at(const Plan& plan, size_t i) {
  return plan.program.instructions[static_cast<size_t>(plan.order[i].instruction)];
}

std::vector<size_t> issues_of(const Plan& plan, OpKind kind) {
  std::vector<size_t> list;
  for (size_t i = 0; i < plan.order.size(); ++i)
    if (op_at(plan, i).op == kind) list.push_back(i);
  return list;
}

int64_t bytes_of(const RankPlan& rank, MemoryClass memory) {
  return rank.memory.at_peak[static_cast<size_t>(memory)];
}

int64_t padded(const RankPlan& rank) {
  int64_t sum = 0;
  for (const Unit& u : rank.train.program.units) sum += u.elements;
  return sum;
}

}  // namespace

TEST_CASE("model states shrink by the paper's formula") {
  for (const auto& [dtype, sums] :
       {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32},
        std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f16}})
    for (const int stage : {0, 1, 2, 3}) {
      Job job = job_at(stage);
      job.dtype = job.wire_dtype = dtype;
      job.grad_dtype = sums;
      const RankPlan rank = plan_of(job);
      const int64_t all = padded(rank), slice = all / job.ranks;
      // Every buffer begins a cache line.
      const auto holds = [&](MemoryClass memory, int64_t elements, int64_t element_bytes) {
        const int64_t over = bytes_of(rank, memory) - elements * element_bytes;
        CHECK(over >= 0);
        CHECK(over < 64 * 3 * static_cast<int64_t>(rank.train.program.units.size()));
      };
      holds(MemoryClass::parameters, stage == 3 ? slice : all, size_of(dtype));
      holds(MemoryClass::gradients, stage >= 2 ? slice : all, size_of(sums));
      holds(MemoryClass::optimizer, stage >= 1 ? slice : all, dtype == DType::f32 ? 8 : 12);
    }
}

TEST_CASE("what 16-bit gradients take besides is one unit's f32 ones, on their way") {
  for (const int stage : {0, 1, 2, 3})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      Job job = job_at(stage);
      job.model.n_layer = 12;
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
  Job job = job_at(2, 3);
  job.model.n_embd = 30;
  const Program program = plan_of(job).train.program;
  int64_t zeroed = 0, parameters = 0;
  for (const Instruction& op : program.instructions)
    if (op.op == OpKind::zero) zeroed += program.at(op.writes[0]).shape.elements();
  for (const Parameter& p : program.parameters) parameters += p.shape.elements();
  CHECK(zeroed > 0);
  CHECK(zeroed + parameters == padded(plan_of(job)));
}

TEST_CASE("gradients that are added once per step are whole until then, at every stage") {
  Job job = job_at(2);
  job.reduce = ReduceMode::boundary;
  const RankPlan rank = plan_of(job);
  CHECK(bytes_of(rank, MemoryClass::gradients) == padded(rank) * 4);
}

TEST_CASE("one rank owns everything: no stage moves anything") {
  const RankPlan zero = plan_of(job_at(0, 1), 0);
  Job job = job_at(3, 1);
  job.reduce = ReduceMode::boundary;
  const RankPlan three = plan_of(job, 0);
  CHECK(three.memory.at_peak == zero.memory.at_peak);
  CHECK(count_collectives(three.train) == 0);
}

TEST_CASE("at reuse distance 0 every block is gathered for its forward and for its backward") {
  const Plan plan = plan_of(job_at(3)).train;
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
  Job job = job_at(3);
  job.gather = {};
  const Plan plan = plan_of(job).train;
  CHECK(issues_of(plan, OpKind::all_gather).size() == plan.program.units.size());
  for (const size_t i : issues_of(plan, OpKind::all_gather))
    CHECK(op_at(plan, i).when == When::step_begin);
}

TEST_CASE("the printed plan says what stays gathered") {
  const std::string lean = plan_to_text(plan_of(job_at(3)), "lean");
  CHECK_THAT(lean, Catch::Contains("0 of 6 units (0 elements) are gathered once") &&
                       Catch::Contains("in 10 gathers"));
  Job job = job_at(3);
  job.gather = {};
  CHECK_THAT(plan_to_text(plan_of(job), "kept"), Catch::Contains("6 of 6 units"));
  CHECK_THAT(plan_to_text(plan_of(job_at(2)), "two"), !Catch::Contains("gathered once"));
}

TEST_CASE("a reuse distance of one block keeps the newest block for its backward") {
  Job job = job_at(3);
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
  Job job = job_at(3);
  job.model.n_layer = 12;
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
  Job job = job_at(3);
  job.model = {
      .kind = ModelKind::benchmark, .n_layer = 6, .in_size = 8, .hidden_size = 8, .out_size = 8};
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
}

TEST_CASE("gradients on their way are bounded by the bucket, and by a share of the model") {
  Job job = job_at(2);
  job.model.n_layer = 12;
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
  job.model = {.kind = ModelKind::benchmark,
               .n_layer = 3,
               .in_size = 256,
               .hidden_size = 256,
               .out_size = 256};
  job.batch.accumulation = 1;
  CHECK(largest_wait() == 1);
  const int64_t two = plan_of(job).memory.total();
  job.zero_stage = 1;
  job.reduce = ReduceMode::boundary;
  CHECK(two < plan_of(job).memory.total());
}

TEST_CASE("verify finds a use before its gather") {
  Plan plan = plan_of(job_at(3)).train;
  const size_t gather = issues_of(plan, OpKind::all_gather)[2];
  plan.order.erase(plan.order.begin() + static_cast<ptrdiff_t>(gather));
  order_communication(plan, false);
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("before it is written"));
}

TEST_CASE("verify finds a use that does not wait for its gather") {
  Plan plan = plan_of(job_at(3)).train;
  const size_t gather = issues_of(plan, OpKind::all_gather)[2];
  int32_t complete = 0;
  for (size_t i = 0; i <= gather; ++i) complete = std::max(complete, plan.waits[i]);
  for (size_t i = gather + 1; i < plan.waits.size(); ++i) plan.waits[i] = complete;
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("may be writing it"));
}

TEST_CASE("verify finds bytes that a peer may still be reading") {
  Plan plan = plan_of(job_at(2)).train;
  // Nothing waits any more for the first reduction: what comes next overwrites its source.
  const size_t sent = issues_of(plan, OpKind::reduce_scatter)[0];
  const int32_t before = plan.waits[sent];
  for (size_t i = sent + 1; i < plan.waits.size(); ++i) plan.waits[i] = before;
  CHECK_THROWS_AS(verify(plan), InternalError);
}

TEST_CASE("verify looks at every micro-batch") {
  Job job = job_at(3);
  job.batch.accumulation = 9;
  const Plan sound = plan_of(job).train;
  verify(sound);
  for (const OpKind kind : {OpKind::all_gather, OpKind::reduce_scatter})
    for (const size_t sent : issues_of(sound, kind)) {
      if (sound.order[sent].micro < 1) continue;
      CAPTURE(name_of(kind), sound.order[sent].micro, sent);
      Plan plan =
          sound;  // nothing of this micro-batch waits for the collective, but what comes after does
      for (size_t i = sent + 1; i < plan.waits.size(); ++i)
        if (plan.order[i].micro == plan.order[sent].micro) plan.waits[i] = plan.waits[sent];
      CHECK_THROWS_AS(verify(plan), InternalError);
    }
  for (const size_t product : issues_of(sound, OpKind::linear_input_grad)) {
    CAPTURE(sound.order[product].micro, product);
    Plan plan = sound;  // one micro-batch lacks an instruction
    plan.order.erase(plan.order.begin() + static_cast<ptrdiff_t>(product));
    plan.waits.erase(plan.waits.begin() + static_cast<ptrdiff_t>(product));
    CHECK_THROWS_WITH(verify(plan), Catch::Contains("before it is written"));
  }
  Plan plan = sound;  // one micro-batch's samples lie where another's do
  plan.address[static_cast<size_t>(plan.program.inputs)].micro_stride = 0;
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("reads"));
}

TEST_CASE("verify finds a wait for a collective that has not been started") {
  Plan plan = plan_of(job_at(1)).train;
  plan.waits[0] = 1;
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("to come"));
}

TEST_CASE("verify finds a gather for nothing") {
  Plan plan = plan_of(job_at(3)).train;
  const size_t gather = issues_of(plan, OpKind::all_gather)[0];
  plan.order.insert(plan.order.begin() + static_cast<ptrdiff_t>(gather), plan.order[gather]);
  plan.waits.insert(plan.waits.begin() + static_cast<ptrdiff_t>(gather), plan.waits[gather]);
  CHECK_THROWS_WITH(verify_gathers(plan), Catch::Contains("never used"));
}

TEST_CASE("verify finds more live parameters than the limit allows") {
  Plan plan = plan_of(job_at(3)).train;
  verify_gathers(plan);
  plan.max_live_elements = plan.program.units[1].elements;
  CHECK_THROWS_WITH(verify_gathers(plan), Catch::Contains("are allowed"));
}

TEST_CASE("verify finds ranks of which one has lost a receive") {
  Job job = job_at(3);
  const Plan a = plan_of(job, 0).train;
  Plan b = plan_of(job, 1).train;
  verify_ranks({&a, &b});
  b.order.erase(b.order.begin() + static_cast<ptrdiff_t>(issues_of(b, OpKind::all_gather)[1]));
  CHECK_THROWS_WITH(verify_ranks({&a, &b}), Catch::Contains("rank 1 has"));
}
