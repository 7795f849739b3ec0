// Observers of steps.
#include <catch2/catch.hpp>
#include <functional>
#include <map>

#include "runtime/engine/step/observer/step_observer.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

class Watcher final : public StepObserver {
 public:
  IssueChange before(const ObservedIssue& issue) override {
    ++begun[{issue.issue.instruction, issue.issue.micro}];
    return change ? change(issue.instruction()) : IssueChange{};
  }
  void after(const ObservedIssue& issue) override {
    const std::pair key{issue.issue.instruction, issue.issue.micro};
    CHECK(begun[key] == ++ended[key]);
  }

  std::map<std::pair<int32_t, int32_t>, int> begun, ended;
  std::function<IssueChange(const Instruction&)> change;
};

Job small_gpt(double dropout) {
  Job job = job_of(GptLite{.n_layer = 2,
                           .n_embd = 12,
                           .n_head = 2,
                           .block_size = 5,
                           .dropout = dropout,
                           .vocab_size = 11});
  job.batch = {.train_batch = 4, .micro_batch = 2, .accumulation = 2};
  return job;
}

// Runs a step, with an observer or without. Returns the sum of the losses.
double step(TestRank& rank, StepObserver* observer) {
  ++rank.state.step;
  rank.state.lr = 0.1F;
  StepContext context{
      .state = &rank.state, .batch = {&rank.data, Split::train, 0}, .observer = observer};
  rank.executor.run(context);
  return rank.state.loss_sum;
}

}  // namespace

TEST_CASE("an observer is told of every instruction, before and after it") {
  const RandomDataset data(11);
  for (const OffloadTo offload : {OffloadTo::none, OffloadTo::cpu}) {
    Job job = small_gpt(0.1);
    job.offload.optimizer = offload;  // copies end later than they begin
    TestRank rank(job, data);
    Watcher watcher;
    step(rank, &watcher);
    CHECK(watcher.begun == watcher.ended);
    size_t issues = 0;
    for (const auto& [key, count] : watcher.ended) issues += static_cast<size_t>(count);
    CHECK(issues == rank.plans.train.order.size());
  }
}

TEST_CASE("a step that is observed has the bits of one that is not") {
  const RandomDataset data(11);
  TestRank observed(small_gpt(0.1), data), alone(small_gpt(0.1), data);
  Watcher watcher;
  for (int i = 0; i < 3; ++i) CHECK(step(observed, &watcher) == step(alone, nullptr));
}

TEST_CASE("an observer leaves an instruction out") {
  const RandomDataset data(11);
  TestRank rank(small_gpt(0), data);
  Watcher watcher;
  watcher.change = [](const Instruction& op) { return IssueChange{.skip = op.op == OpKind::adam}; };
  const double first = step(rank, &watcher);
  CHECK(step(rank, &watcher) == first);  // no weight has moved
  CHECK(step(rank, nullptr) == first);
  CHECK(step(rank, nullptr) != first);
}

TEST_CASE("an observer moves dropout masks to other samples") {
  const RandomDataset data(11);
  Watcher watcher;
  watcher.change = [](const Instruction&) { return IssueChange{.sample_shift = 1}; };
  for (const double dropout : {0.0, 0.1}) {
    TestRank moved(small_gpt(dropout), data), usual(small_gpt(dropout), data);
    const bool equal = step(moved, &watcher) == step(usual, nullptr);
    CHECK(equal == (dropout == 0));
  }
}

TEST_CASE("an observer gives an instruction other attributes, for one time") {
  const RandomDataset data(11);
  TestRank changed(small_gpt(0), data), usual(small_gpt(0), data);
  const double expected = step(usual, nullptr);
  Watcher watcher;
  watcher.change = [](const Instruction& op) -> IssueChange {
    if (op.op == OpKind::adam) return {.skip = true};  // no weight moves
    if (op.op != OpKind::attention) return {};
    auto attrs = attrs_as<AttentionAttrs>(op.attrs);
    attrs.window = 1;  // a token sees itself alone
    return {.attrs = attrs};
  };
  CHECK(step(changed, &watcher) != expected);
  CHECK(step(changed, nullptr) == expected);
}

}  // namespace dstrain
