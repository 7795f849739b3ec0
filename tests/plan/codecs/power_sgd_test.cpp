// PowerSGD: what travels, its bytes by formula, what is kept from step to step and when it is replaced.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

namespace dstrain {
namespace {

Job factors_job(int ranks, int stage = 0, int64_t rank = 2) {
  Job job = sharded_job(stage, ranks);
  job.hook = {.kind = HookKind::power_sgd, .rank = rank};
  return job;
}

// The bytes of a ring's all-reduce of n values, as dstrain counts them: small messages do not count.
int64_t all_reduce_bytes(int64_t n, int64_t ranks, DType dtype = DType::f32) {
  const int64_t bytes = n * size_of(dtype);
  return bytes < 1024 ? 0 : 2 * (ranks - 1) * bytes / ranks;
}

struct Travels {
  int64_t p = 0, q = 0, whole = 0, matrices = 0, elements = 0;
};

// What travels by the rule: min_compression times the factors are smaller than the matrix.
Travels travels(const Program& program, const HookConfig& hook) {
  Travels t;
  for (const Parameter& p : program.parameters) {
    const int64_t n = p.shape.elements(), rows = p.shape.rank > 1 ? p.shape[0] : 1, cols = n / rows;
    const int64_t r = std::min({hook.rank, rows, cols});
    if (static_cast<double>((rows + cols) * r) * hook.min_compression >= static_cast<double>(n))
      continue;
    t.p += r * rows;
    t.q += r * cols;
    t.elements += n;
    ++t.matrices;
  }
  for (const Instruction& op : program.instructions)
    if (op.op == OpKind::all_reduce && program.at(op.reads[0]).name == "whole_grads")
      t.whole = program.at(op.reads[0]).shape.elements();
  return t;
}

int64_t elements_named(const Program& program, const std::string& name) {
  const BufferId id = program.find(name);
  return id == kNone ? 0 : program.at(id).shape.elements();
}

TEST_CASE("the bytes of a step are those of two factors and of what travels whole") {
  for (const int ranks : {2, 3, 4})
    for (const int stage : {0, 1})
      for (const int64_t rank : {1, 2, 5})
        for (const DType wire : {DType::f32, DType::bf16}) {
          CAPTURE(ranks, stage, rank, name_of(wire));
          Job job = factors_job(ranks, stage, rank);
          job.wire_dtype = wire;
          const Plan plan = plan_of(job, 1).train;
          const Travels t = travels(plan.program, job.hook);
          CHECK(t.matrices > 0);
          CHECK(static_cast<int64_t>(count_ops(plan, OpKind::expand_factors)) == t.matrices);
          int64_t gathers = 0;  // of updated parameters, at stage 1
          if (stage == 1)
            for (const Unit& unit : plan.program.units)
              if (unit.elements * 4 >= 1024) gathers += (ranks - 1) * unit.elements * 4 / ranks;
          CHECK(wire_bytes(plan) == all_reduce_bytes(t.p, ranks, wire) +
                                        all_reduce_bytes(t.q, ranks, wire) +
                                        all_reduce_bytes(t.whole, ranks, wire) + gathers);
          CHECK(count_ops(plan, OpKind::all_reduce) == 3);
          CHECK(elements_named(plan.program, "hook_error") == t.elements);
          CHECK(elements_named(plan.program, "hook_factor") == t.q);
        }
}

TEST_CASE("every gradient travels once: whole or as factors") {
  const Job job = factors_job(2);
  const Program& program = plan_of(job, 0).train.program;
  const Travels t = travels(program, job.hook);
  int64_t all = 0;
  for (const Parameter& p : program.parameters) all += p.shape.elements();
  CHECK(t.whole >= all - t.elements);  // and the zeros between neighbours
  CHECK(t.whole < all - t.elements + 64 * static_cast<int64_t>(program.parameters.size()));
}

TEST_CASE("all ranks send the same, and a hook that has no matrix sends everything whole") {
  for (const int stage : {0, 1}) {
    const Job job = factors_job(4, stage);
    const std::vector<std::string> first = comm_work(plan_of(job, 0).train);
    for (int rank = 1; rank < 4; ++rank) CHECK(comm_work(plan_of(job, rank).train) == first);
  }
  Job job = factors_job(3);
  job.hook.min_compression = 1e6;
  const Plan plan = plan_of(job, 0).train;
  CHECK(count_ops(plan, OpKind::all_reduce) == 1);
  CHECK(count_ops(plan, OpKind::commit_state) == 0);
  CHECK(plan.program.codec_state.empty());
}

TEST_CASE("batched: each layer is a square matrix, and nothing travels whole") {
  Job job = factors_job(3);
  job.hook.kind = HookKind::batched_power_sgd;
  const Plan plan = plan_of(job, 2).train;
  int64_t sides = 0;
  for (const Unit& unit : plan.program.units) {
    const int64_t n =
        elements_of(plan.program.parameters[static_cast<size_t>(unit.parameters.back())]).end;
    const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    CHECK(elements_named(plan.program, "square:" + unit.name) == side * side);
    sides += side;
  }
  CHECK(wire_bytes(plan) == 2 * all_reduce_bytes(2 * sides, 3));
  CHECK(plan.program.find("whole_grads") == kNone);
}

TEST_CASE("state is replaced after the end of the gradients, and is what checkpoints hold") {
  for (const bool feedback : {true, false}) {
    Job job = factors_job(2);
    job.hook.error_feedback = feedback;
    const Plan plan = plan_of(job, 1).train;
    const Program& program = plan.program;
    const std::vector<size_t> finish = issues_of(plan, OpKind::finish_gradients),
                              commits = issues_of(plan, OpKind::commit_state);
    REQUIRE(commits.size() == (feedback ? 2 : 1));
    for (const size_t commit : commits) CHECK(commit > finish[0]);
    for (const Issue& issue : plan.order) {  // nothing else writes what is kept
      const Instruction& op = program.instructions[static_cast<size_t>(issue.instruction)];
      for (const BufferId id : op.writes)
        if (id != kNone && program.at(program.root(id)).name.starts_with("hook_") &&
            program.at(program.root(id)).lifetime == Lifetime::persistent)
          CHECK(op.op == OpKind::commit_state);
    }
    CHECK((program.find("hook_error") != kNone) == feedback);
    std::map<std::string, int64_t> held;
    for (const CodecState& state : program.codec_state) {
      held[state.slot] += program.at(state.values).shape.elements();
      CHECK(state.per_rank == (state.slot == "error"));
      CHECK((state.init == Init::normal) == (state.slot == "factor"));
    }
    CHECK(held["factor"] == elements_named(program, "hook_factor"));
    CHECK(held["error"] == elements_named(program, "hook_error"));
  }
}

TEST_CASE("without a warm start each step begins with random factors, and none is kept") {
  Job job = factors_job(2);
  const Plan warm = plan_of(job, 1).train;
  job.hook.warm_start = false;
  const Plan plan = plan_of(job, 1).train;
  CHECK(count_ops(warm, OpKind::random_factor) == 0);
  CHECK(count_ops(plan, OpKind::random_factor) == count_ops(plan, OpKind::expand_factors));
  CHECK(wire_bytes(plan) == wire_bytes(warm));
  CHECK(plan.program.find("hook_factor") == kNone);
  CHECK(count_ops(plan, OpKind::commit_state) == 1);
  for (const CodecState& state : plan.program.codec_state) CHECK(state.slot == "error");
  std::set<uint64_t> streams;
  for (const Instruction& op : plan.program.instructions)
    if (op.op == OpKind::random_factor)
      streams.insert(std::get<RandomFactorAttrs>(op.attrs).stream);
  CHECK(streams.size() == count_ops(plan, OpKind::random_factor));
}

TEST_CASE("the line at the start of a run says what travels, with its bytes and without") {
  const Job job = factors_job(2);
  const Plan plan = plan_of(job, 0).train;
  const Travels t = travels(plan.program, job.hook);
  const std::string line = codec_line(job, plan, std::vector<int>(2, 0), fake_inputs());
  CHECK(line.starts_with(
      fmt::format("powerSGD: {} gradients ({} values) travel as factors of rank 2, {} values "
                  "whole; rank 0 sends ",
                  t.matrices, t.elements, t.whole)));
  CHECK(codec_line(factors_job(1), plan_of(factors_job(1), 0).train, std::vector<int>(1, 0),
                   fake_inputs()) ==
        "no effect of dstrain.comm_hook: one rank sends neither parameters nor gradients to "
        "others");
}

}  // namespace
}  // namespace dstrain
