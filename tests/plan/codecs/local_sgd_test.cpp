// Steps of post-local SGD: what each kind of them sends and updates.
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job local_job(int ranks, int group, DType dtype = DType::bf16) {
  Job job = sharded_job(0, ranks);
  job.dtype = job.wire_dtype = dtype;
  job.model.set("n_embd", 64);
  job.hook = {.kind = HookKind::post_local_sgd, .start = 5, .period = 3};
  job.shards = {group, false, false};
  return job;
}

int64_t elements_of(const Plan& plan) {
  int64_t elements = 0;
  for (const Unit& unit : plan.program.units) elements += unit.elements;
  return elements;
}

}  // namespace

TEST_CASE("post_localSGD: kinds of steps are a function of the number of updates") {
  const Job job = local_job(4, 1);
  for (int64_t applied = 0; applied < 15; ++applied) {
    const StepKind expected = applied < 5              ? StepKind::whole_gradients
                              : (applied - 5) % 3 == 0 ? StepKind::regular
                                                       : StepKind::local;
    CHECK(kind_of_step(job, applied, StepKind::regular) == expected);
    const GroupsDiffer differ = groups_differ(job, applied + 1);
    CHECK(differ.weights == (expected == StepKind::local));
    CHECK(differ.state == (applied >= 5));
  }
  CHECK(step_kinds(job).size() == 3);
  CHECK(steps_text(job, StepKind::whole_gradients) == "steps 1 to 5");
  CHECK(steps_text(job, StepKind::regular) == "steps 6, 9, ... every 3");
  CHECK(steps_text(job, StepKind::local) == "the others from step 7 on");
  Job every = job;
  every.hook.period = 1;
  every.hook.start = 0;
  CHECK(step_kinds(every) == std::vector{StepKind::regular});
  for (const Job& one : {local_job(4, 4), local_job(1, 1)}) {
    CHECK(local_groups(one) == 1);
    CHECK(step_kinds(one) == std::vector{StepKind::regular});
    CHECK_FALSE(groups_differ(one, 9).state);
  }
}

TEST_CASE("post_localSGD: before the start and in one group steps are the ordinary ones") {
  Job plain = local_job(4, 4);
  plain.hook = {};
  plain.shards = {};
  const RankPlan expected = plan_of(plain), groups = plan_of(local_job(4, 2)),
                 one = plan_of(local_job(4, 4));
  const Plan& before = groups.training(StepKind::whole_gradients);
  for (const Plan* plan : {&before, &one.train}) {
    CHECK(op_names(*plan, "step") == op_names(expected.train, "step"));
    CHECK(wire_bytes(*plan) == wire_bytes(expected.train));
  }
}

TEST_CASE("post_localSGD: ranks alone send their weights in steps with an average, else nothing") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {2, 3, 4}) {
      const RankPlan plans = plan_of(local_job(ranks, 1, dtype));
      const Plan& local = plans.training(StepKind::local);
      CHECK(wire_bytes(local) == 0);
      CHECK(count_ops(local, OpKind::commit_state) == 0);
      CHECK(local.place.ranks_in(local.adds) == 1);
      const int64_t n = elements_of(plans.train);
      CHECK(wire_bytes(plans.train) == 2 * (ranks - 1) * n * 4 / ranks);
      const size_t units = plans.train.program.units.size();
      CHECK(count_ops(plans.train, OpKind::all_reduce) == units);
      CHECK(count_ops(plans.train, OpKind::commit_state) == units);
      // Every weight counts for the norm of its rank.
      int64_t squared = 0;
      for (const Instruction& op : local.program.instructions)
        if (op.op == OpKind::sum_squares) squared += local.program.at(op.reads[0]).shape.elements();
      CHECK(squared == n);
    }
}

TEST_CASE("post_localSGD: a group adds its gradients, and each rank sends a slice to the others") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const RankPlan plans = plan_of(local_job(6, 2, dtype), 3);
    const Plan& local = plans.training(StepKind::local);
    const int64_t n = elements_of(local), gradients = n * size_of(dtype);  // 2 (S-1)/S
    CHECK(sent_on(local, Axis::shard) == gradients / 2);
    CHECK(wire_bytes(local) == gradients);
    CHECK(sent_on(local, kStateAxes) == 0);
    CHECK(sent_on(local, Axis::replica) == 0);
    CHECK(local.place.rank_in(local.adds) == 1);
    CHECK(local.place.ranks_in(local.adds) == 2);
    // Half of the weights among 3 groups, and the other half from the other rank of the group.
    CHECK(wire_bytes(plans.train) == gradients + 2 * 2 * (n / 2) * 4 / 3 + n / 2 * 4);
    for (const Instruction& op : plans.train.program.instructions)
      if (op.op == OpKind::commit_state) CHECK(std::get<CommitAttrs>(op.attrs).divisor == 3);
  }
}

TEST_CASE("post_localSGD: groups are the ranks of hosts, which must have as many each") {
  Job job = local_job(4, 0);
  job.shards = {0, true, false};
  settle_host_shards(job, std::vector{0, 0, 1, 1});
  CHECK(job.shards == ShardConfig{2, false, false});
  job.shards = {0, true, false};
  CHECK_THROWS_AS(settle_host_shards(job, std::vector{0, 0, 0, 1}), UserError);
}

TEST_CASE("post_localSGD: the line at the start of a run names the groups") {
  const auto line = [](const Job& job, const std::vector<int>& hosts) {
    return codec_line(job, plan_of(job, 0).train, hosts, fake_inputs());
  };
  CHECK(line(local_job(4, 2), {0, 0, 1, 1})
            .starts_with("post_localSGD: 2 groups of 2 ranks update weights of their own, which "
                         "are averaged every 3 updates; rank 0 sends "));
  CHECK(line(local_job(4, 2), {0, 0, 1, 1}).find(", its host ") != std::string::npos);
  CHECK(line(local_job(4, 4), {0, 0, 0, 0}).find("all ranks are on one host") != std::string::npos);
  CHECK_THAT(line(local_job(1, 1), {0}),
             Catch::StartsWith("no effect of dstrain.comm_hook: one rank"));
}
