#include <catch2/catch.hpp>

#include "runtime/plan/proof/verify_ranks.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

constexpr const char* kTied = "token_embedding_table.weight";

// GPT-2 in six layers: the head uses the embedding's weights.
Job tied_job(int stages, int zero_stage, ReduceMode reduce = ReduceMode::boundary) {
  Job job = sharded_job(zero_stage, 2 * stages);
  job.model.set("activation", "gelu");
  job.model.set("qkv_bias", true);
  job.model.set("tied_head", true);
  job.pipeline.stages = stages;
  job.reduce = reduce;
  job.batch = {2 * 2 * 5, 2, 5};
  job.eval_interval = 1;
  return job;
}

std::vector<RankPlan> rank_plans_of(const Job& job) {
  std::vector<RankPlan> plans;
  for (int s = 0; s < job.pipeline.stages; ++s) plans.push_back(plan_of(job, 2 * s));
  return plans;
}

// What a stage does on the tied channel, in the order of a step: "send param:NAME 0".
std::vector<std::string> tied_messages(const Plan& plan) {
  std::vector<std::string> list;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Instruction& op = op_at(plan, i);
    if (!is_collective(op.op) || plan.comm_channel(op).link != Link::tied) continue;
    const BufferId id = op.op == OpKind::send ? op.reads[0] : op.writes[0];
    list.push_back(
        fmt::format("{} {} {}", name_of(op.op), plan.program.at(id).name, plan.order[i].micro));
  }
  return list;
}

int64_t memory_of(const RankPlan& plan, MemoryClass memory) {
  return plan.memory.at_peak[static_cast<size_t>(memory)];
}

}  // namespace

TEST_CASE("a tied weight goes to the last stage once per step, its gradient comes back once") {
  const std::string value = fmt::format("param:{}", kTied);
  const std::string gradient = fmt::format("tied_grad:{}", kTied);
  for (const int stages : {2, 3, 4})
    for (const int zero_stage : {0, 1, 2, 3})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        INFO(stages << " stages, ZeRO " << zero_stage);
        const std::vector<RankPlan> plans = rank_plans_of(tied_job(stages, zero_stage, reduce));
        std::vector<const Plan*> train;
        for (const RankPlan& plan : plans) train.push_back(&plan.train);
        CHECK_NOTHROW(verify_ranks(train));
        CHECK(tied_messages(plans.front().train) ==
              std::vector<std::string>{"send " + value + " 0", "recv " + gradient + " 4"});
        CHECK(tied_messages(plans.back().train) ==
              std::vector<std::string>{"recv " + value + " 0", "send " + gradient + " 4"});
        CHECK(tied_messages(plans.back().validate) ==
              std::vector<std::string>{"recv " + value + " 0"});
        for (size_t s = 1; s + 1 < plans.size(); ++s) CHECK(tied_messages(plans[s].train).empty());
      }
}

TEST_CASE("only the first stage has a tied weight's state") {
  for (const int zero_stage : {0, 1, 2, 3}) {
    INFO("ZeRO " << zero_stage);
    const std::vector<RankPlan> plans = rank_plans_of(tied_job(2, zero_stage));
    std::vector<std::string> names;
    for (const RankPlan& plan : plans)
      for (const Parameter& p : plan.train.program.parameters) names.push_back(p.name);
    CHECK(std::ranges::count(names, kTied) == 1);
    CHECK(names.size() == plans.front().train.program.model.size());
    Job alone = tied_job(1, zero_stage);
    alone.ranks = 2;
    const int64_t whole = memory_of(plan_of(alone, 0), MemoryClass::optimizer);
    CHECK(memory_of(plans[0], MemoryClass::optimizer) +
              memory_of(plans[1], MemoryClass::optimizer) ==
          whole);
  }
}

TEST_CASE("a tied gradient is added before the data-parallel ranks add theirs") {
  for (const int zero_stage : {0, 1, 2, 3}) {
    const Plan plan = rank_plans_of(tied_job(3, zero_stage)).front().train;
    const Program& p = plan.program;
    size_t added = 0, reduced = 0;
    for (size_t i = 0; i < plan.order.size(); ++i) {
      const Instruction& op = op_at(plan, i);
      if (op.op == OpKind::accumulate && p.at(op.reads[0]).name.starts_with("tied_grad")) added = i;
      if ((op.op == OpKind::all_reduce || op.op == OpKind::reduce_scatter) &&
          group_of(plan, op) == "embedding")
        reduced = i;
    }
    REQUIRE(added > 0);
    CHECK(reduced > added);
  }
}
