// Steps that are replayed as graphs: the pieces of a step, the size of their graphs, and the bits of the step.
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "tests/engine/device/submitted_library.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

Job small_job(int64_t accumulation) {
  Job job;
  job.model = GptLite{
      .n_layer = 2, .n_embd = 30, .n_head = 2, .block_size = 7, .dropout = 0.1, .vocab_size = 13};
  job.batch = {accumulation * 2, 2, accumulation};
  job.eval_interval = 0;
  return job;
}

Executor::GraphSize size_of_graphs(int64_t accumulation) {
  const RandomDataset data(13, 0.1);
  TestRank rank(small_job(accumulation), data, 1, submitted_backend());
  CHECK(rank.executor.graph_size().graphs == 0);
  rank.step(0.01f);
  CHECK(rank.executor.graph_size().graphs == 0);  // the first step is none
  rank.step(0.01f);
  return rank.executor.graph_size();
}

TEST_CASE("the graphs of a step do not grow with its micro-batches") {
  const Executor::GraphSize one = size_of_graphs(1), two = size_of_graphs(2),
                            three = size_of_graphs(3);
  CHECK((one.graphs == 1 && two.graphs == 1 && three.graphs == 1));
  CHECK((one.launches == 1 && three.launches == 1));
  // With one micro-batch what lies between gradients is zeroed in each step.
  const RandomDataset data(13, 0.1);
  const TestRank rank(small_job(1), data, 1, submitted_backend());
  const int64_t zeros =
      std::ranges::count(rank.plans.train.program.instructions, OpKind::zero, &Instruction::op);
  CHECK(three.nodes - two.nodes == two.nodes - one.nodes + zeros);
  for (const int64_t accumulation : {4, 5, 8}) {
    const Executor::GraphSize size = size_of_graphs(accumulation);
    CHECK(size.graphs == 3);
    CHECK(size.nodes == three.nodes);
    CHECK(size.launches == accumulation);
  }
}

TEST_CASE("a step of replayed micro-batches has the bits of one without graphs") {
  const RandomDataset data(13, 0.1);
  for (const int64_t accumulation : {1, 2, 3, 4, 8}) {
    CAPTURE(accumulation);
    Job job = small_job(accumulation);
    TestRank replayed(job, data, 1, submitted_backend());
    job.graph = GraphMode::off;
    TestRank plain(job, data, 1, submitted_backend());
    for (int64_t step = 0; step < 4; ++step) {
      // Other samples in every step: dropout counts them.
      replayed.state.first_sample = plain.state.first_sample = 2 * step * accumulation;
      CHECK(replayed.step(0.01f) == plain.step(0.01f));
      CHECK(replayed.state.grad_norm == plain.state.grad_norm);
      CHECK(replayed.state.first_sample == plain.state.first_sample);
    }
  }
}

TEST_CASE("the host replays two launches of graphs ahead of the device, and notes each one") {
  const RandomDataset data(13, 0.1);
  constexpr int64_t kMicroBatches = 8, kBeforeBody = 2;
  const auto slot = std::make_unique<RankSlot>();
  TestRank rank(small_job(kMicroBatches), data, 1, submitted_backend(), slot.get());
  rank.step(0.01f);
  rank.step(0.01f);
  const int64_t begin = slot->progress;
  const auto noted = [&] { return slot->progress - begin; };
  std::promise<void> gate;
  static_cast<EmulatedStream*>(rank.backend.compute->native())
      ->submit([opened = gate.get_future().share()] { opened.wait(); });
  auto step = std::async(std::launch::async, [&] { return rank.step(0.01f); });
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  while (noted() < kBeforeBody + 3) pause();
  pause();
  CHECK(noted() == kBeforeBody + 3);  // it waits before the third launch
  gate.set_value();
  CHECK(std::isfinite(step.get()));
  CHECK(noted() == kBeforeBody + kMicroBatches);
}

TEST_CASE("a traced step between replayed ones has their bits and times of all instructions") {
  const RandomDataset data(13, 0.1);
  for (const int64_t accumulation : {1, 4}) {
    CAPTURE(accumulation);
    TestRank traced(small_job(accumulation), data, 1, submitted_backend());
    TestRank plain(small_job(accumulation), data, 1, submitted_backend());
    for (int64_t step = 0; step < 6; ++step) {
      StepTrace trace;
      trace.prepare(traced.plans.train);
      traced.state.step = 1;
      traced.state.lr = 0.01F;
      StepContext context{.state = &traced.state,
                          .batch = {&data, Split::train, 0},
                          .trace = step == 2 || step == 3 ? &trace : nullptr};
      traced.executor.run(context);
      CHECK(traced.state.loss_sum / static_cast<double>(traced.state.targets) == plain.step(0.01F));
      CHECK(traced.state.grad_norm == plain.state.grad_norm);
      for (const TimeSpan& span : trace.issues)
        CHECK((context.trace == nullptr) == (span.begin_ns == 0));
    }
    CHECK(traced.executor.graph_size().nodes == plain.executor.graph_size().nodes);
  }
}

TEST_CASE("pieces cover a step, and the middle one names what a micro-batch has of its own") {
  const RandomDataset data(13);
  for (const int64_t accumulation : {1, 3, 4, 7}) {
    const TestRank rank(small_job(accumulation), data, 1, submitted_backend());
    const Plan& plan = rank.plans.train;
    const std::vector<StepPiece> pieces = step_pieces(plan, 2);
    CAPTURE(accumulation);
    CHECK(pieces.size() == (accumulation > 3 ? 3u : 1u));
    CHECK(pieces.front().begin == 2);
    CHECK(pieces.back().end == plan.order.size());
    CHECK(pieces.back().posted == count_posted(plan));
    if (pieces.size() == 1) continue;
    const size_t of_middle = pieces[1].end - pieces[1].begin;
    CHECK(pieces[0].end == pieces[1].begin);
    CHECK(pieces[2].begin == pieces[1].begin + of_middle * static_cast<size_t>(accumulation - 2));
    CHECK(pieces[1].launches == accumulation - 2);
    CHECK(pieces[1].moved.size() == 2);  // ids and targets
    for (const BufferId id : pieces[1].moved) CHECK(plan.program.at(id).per_micro);
  }
}

TEST_CASE("a middle piece that writes what each micro-batch has of its own is not replayed") {
  const RandomDataset data(13);
  const TestRank rank(small_job(5), data, 1, submitted_backend());
  Plan plan = rank.plans.train;
  for (const Instruction& op : plan.program.instructions)
    if (op.op == OpKind::embed) plan.address[static_cast<size_t>(op.writes[0])].copies = 5;
  CHECK(step_pieces(plan, 2).size() == 1);
}

}  // namespace
}  // namespace dstrain
