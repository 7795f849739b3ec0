#include "runtime/engine/run/step_phases.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "launcher/implementations.h"
#include "runtime/engine/step/backend.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kWork = kMillisecond;         // of every instruction
constexpr int64_t kWait = 1000 * kMillisecond;  // for what is posted
constexpr int64_t kMessage = 7 * kMillisecond;  // from start to completion
constexpr int64_t kEnd = 3 * kMillisecond;      // after the last instruction

Job job_of(int zero_stage, int ranks, int stages = 1) {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 16, .n_head = 2, .block_size = 8, .vocab_size = 11};
  job.zero_stage = zero_stage;
  job.reduce = usual_reduce(zero_stage);
  job.ranks = ranks;
  job.pipeline.stages = stages;
  job.batch = {6 * ranks / stages, 2, 3};
  return job;
}

Plan plan_of(const Job& job) {
  return make_rank_plan(job, place_of(job, 0),
                        {make_planning_library(implementations(), DeviceKind::cpu), 1})
      .train;
}

const Instruction& op_of(const Plan& plan, size_t i) {
  return plan.program.instructions[static_cast<size_t>(plan.order[i].instruction)];
}

// Returns whether issue `i` waits for something that none before it waits for.
bool waits(const Plan& plan, size_t i) {
  const auto channels = static_cast<size_t>(plan.channels);
  for (size_t c = 0; c < channels; ++c) {
    int32_t before = 0;
    for (size_t j = 0; j < i; ++j) before = std::max(before, plan.waits[j * channels + c]);
    if (plan.waits[i * channels + c] > before) return true;
  }
  return false;
}

// Returns a trace in which all instructions take the same time, and all waiting too.
StepTrace even_trace(const Plan& plan) {
  StepTrace trace;
  trace.prepare(plan);
  int64_t now = trace.whole.begin_ns = 5;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    trace.waits[i] = {now, now + (waits(plan, i) ? kWait : 0)};
    now = trace.waits[i].end_ns + kWork;
    trace.issues[i] = {trace.waits[i].end_ns, now};
    if (const OpKind op = op_of(plan, i).op; op == OpKind::send || op == OpKind::recv)
      trace.issues[i] = {now, now + kMessage};
  }
  trace.waits.back() = {now, now};
  trace.whole.end_ns = now + kEnd;
  return trace;
}

double sum_of(const PhaseTimes& times) {
  return times.forward + times.backward() + times.step;
}

template <class Condition>
double count(const Plan& plan, const Condition& condition) {
  double n = 0;
  for (size_t i = 0; i < plan.order.size(); ++i) n += condition(op_of(plan, i)) ? 1 : 0;
  return n;
}

bool in_micro_batch(const Instruction& op) {
  return op.when == When::every_micro || op.when == When::last_micro;
}

TEST_CASE("phases: every moment of a step is in one phase of one micro-batch") {
  const Job job = job_of(GENERATE(0, 1, 2, 3), GENERATE(1, 2));
  CAPTURE(job.zero_stage, job.ranks);
  const Plan plan = plan_of(job);
  const StepTrace trace = even_trace(plan);
  const StepPhases phases = phases_of(trace);
  REQUIRE(phases.micro_batches.size() == 3);
  CHECK(sum_of(phases.all()) == Approx(static_cast<double>(trace.whole.size()) * 1e-6));
  CHECK_FALSE(phases.messages);
  for (size_t m = 0; m < 3; ++m) {
    const PhaseTimes& times = phases.micro_batches[m];
    CHECK(times.forward > 0);
    CHECK(times.backward_inner > 0);
    CHECK((times.step > 0) == (m == 2));
  }
}

TEST_CASE("phases: a rank alone works in forward, backward and update, and waits for no sum") {
  const Plan plan = plan_of(job_of(0, 1));
  const PhaseTimes all = phases_of(even_trace(plan)).all();
  CHECK(all.forward == count(plan, [](const Instruction& op) {
          return op.when == When::step_begin || (in_micro_batch(op) && op.phase == Phase::forward);
        }));
  CHECK(all.backward_inner == count(plan, [](const Instruction& op) {
          return in_micro_batch(op) && op.phase != Phase::forward;
        }));
  CHECK(all.backward_allreduce == 0);
  CHECK(all.step == count(plan, [](const Instruction& op) { return op.when == When::step_end; }) +
                        static_cast<double>(kEnd) * 1e-6);
}

TEST_CASE("phases: waiting for sums of gradients is bwd_allreduce, whoever waits") {
  const Plan plan = plan_of(job_of(0, 2));  // which posts nothing else
  const double sums =
      count(plan, [](const Instruction& op) { return op.op == OpKind::all_reduce; });
  double waiting = 0;
  for (size_t i = 0; i < plan.order.size(); ++i) waiting += waits(plan, i) ? 1000 : 0;
  REQUIRE(sums > 0);
  REQUIRE(waiting > 0);
  CHECK(phases_of(even_trace(plan)).all().backward_allreduce == Approx(waiting + sums));
}

TEST_CASE("phases: waiting for gathered parameters belongs to who waits") {
  const Plan plan = plan_of(job_of(3, 2));
  double forward = 0;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Instruction& op = op_of(plan, i);
    if (in_micro_batch(op) && op.phase == Phase::forward && plan.order[i].micro == 0 &&
        waits(plan, i))
      forward += 1000;
  }
  REQUIRE(forward > 0);
  const StepPhases phases = phases_of(even_trace(plan));
  CHECK(phases.micro_batches[0].forward > forward);
  CHECK(phases.micro_batches[0].forward < forward + 1000);
  CHECK(phases.all().backward_allreduce >= 1000);
}

TEST_CASE("phases: what ranks of a tensor group add of activations belongs to the passes") {
  Job job = job_of(0, 2);
  job.tensor_ranks = 2;
  job.batch = {6, 2, 3};
  const Plan plan = plan_of(job);
  const auto adds = [&plan](const Instruction& op, bool activations) {
    const Program& program = plan.program;
    return (op.op == OpKind::all_reduce || op.op == OpKind::reduce_scatter) &&
           (program.at(program.root(op.reads[0])).memory == MemoryClass::activations) ==
               activations;
  };
  REQUIRE(count(plan, [&](const Instruction& op) { return adds(op, true); }) > 0);
  // The gradients of norms and biases, which both ranks have: once a step, and each is waited for at most once.
  const double sums = count(
      plan, [&](const Instruction& op) { return op.when != When::step_end && adds(op, false); });
  REQUIRE(sums > 0);
  const StepPhases phases = phases_of(even_trace(plan));
  CHECK(phases.all().backward_allreduce >= sums);
  CHECK(phases.all().backward_allreduce <= sums * 1001);
  CHECK(phases.micro_batches[0].backward_allreduce == 0);
  // A forward pass waits for rows of other ranks.
  CHECK(phases.micro_batches[0].forward > 1000);
}

TEST_CASE("phases: a stage of a pipeline has the times of its messages") {
  const Plan plan = plan_of(job_of(0, 2, 2));
  const StepTrace trace = even_trace(plan);
  const StepPhases phases = phases_of(trace);
  REQUIRE(phases.messages);
  CHECK(phases.messages->send_output == 3 * 7);
  CHECK(phases.messages->recv_grad == 3 * 7);
  CHECK(phases.messages->recv_input == 0);
  CHECK(phases.messages->send_grad == 0);
  CHECK(sum_of(phases.all()) == Approx(static_cast<double>(trace.whole.size()) * 1e-6));
}

}  // namespace
}  // namespace dstrain
