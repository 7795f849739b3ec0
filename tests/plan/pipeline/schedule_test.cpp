#include "runtime/plan/pipeline/schedule.h"

#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "runtime/core/error.h"
#include "tests/plan/pipeline/pipelines.h"

using namespace dstrain;

namespace {

std::string order_text(PipelineSchedule schedule, int stages, int chunks, int stage, int micros) {
  return text_of(stage_order(schedule, stages, chunks, stage, micros));
}

// The order of a stage as DeepSpeed's TrainSchedule computes it, step by step.
std::vector<StageTask> deepspeed_order(int stages, int stage, int micros) {
  std::vector<StageTask> order;
  for (int t = 0; t < 2 * (micros + stages - 1); ++t) {
    const bool forward = t % 2 == stage % 2;
    const int half = t / 2;
    int micro = half - stage / 2;
    if (!forward)
      micro = t % 2 == 0 ? half - stages + (stage + 1) / 2 : half - stages + 1 + stage / 2;
    if (micro >= 0 && micro < micros)
      order.push_back({forward ? Phase::forward : Phase::backward, 0, micro});
  }
  return order;
}

}  // namespace

TEST_CASE("schedule: every task is done once, in an order that a stage can keep") {
  for (const PipelineCase& c : pipeline_cases()) {
    INFO(c.text());
    const int chunks = chunks_of(c.schedule, c.virtual_stages);
    const bool split = splits_backward(c.schedule) && c.stages > 1;
    for (int stage = 0; stage < c.stages; ++stage) {
      std::set<std::array<int, 3>> done;
      bool possible = true;
      const auto order = stage_order(c.schedule, c.stages, c.virtual_stages, stage, c.micros);
      for (const StageTask& task : order) {
        const int phase = static_cast<int>(task.phase);
        possible = possible && task.chunk >= 0 && task.chunk < chunks && task.micro >= 0 &&
                   task.micro < c.micros && phase <= (split ? 2 : 1);
        possible = possible && (phase == 0 || done.contains({phase - 1, task.chunk, task.micro}));
        possible = possible && done.insert({phase, task.chunk, task.micro}).second;
      }
      CHECK(possible);
      CHECK(order.size() == static_cast<size_t>(c.micros * chunks * (split ? 3 : 2)));
    }
  }
}

TEST_CASE("schedule: every phase of a chunk takes the micro-batches in ascending order") {
  for (const PipelineCase& c : pipeline_cases())
    for (int stage = 0; stage < c.stages; ++stage) {
      std::map<std::pair<Phase, int>, int> next;
      bool ascending = true;
      for (const StageTask& task :
           stage_order(c.schedule, c.stages, c.virtual_stages, stage, c.micros))
        ascending = ascending && task.micro == next[{task.phase, task.chunk}]++;
      INFO(c.text() << ", stage " << stage);
      CHECK(ascending);
    }
}

TEST_CASE("schedule: one stage accumulates gradients, whatever the schedule") {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1})
    CHECK(order_text(schedule, 1, 1, 0, 3) == "F0 B0 F1 B1 F2 B2");
  for (const PipelineSchedule schedule : {PipelineSchedule::interleaved, PipelineSchedule::zb_v})
    CHECK(order_text(schedule, 1, 2, 0, 2) == "F0 F0' B0' B0 F1 F1' B1' B1");
}

TEST_CASE("schedule: gpipe") {
  for (const int stage : {0, 1, 2})
    CHECK(order_text(PipelineSchedule::gpipe, 3, 1, stage, 4) == "F0 F1 F2 F3 B0 B1 B2 B3");
}

TEST_CASE("schedule: 1f1b is DeepSpeed's") {
  const auto order = [](int stages, int stage, int micros) {
    return order_text(PipelineSchedule::one_f_one_b, stages, 1, stage, micros);
  };
  CHECK(order(2, 0, 4) == "F0 F1 B0 F2 B1 F3 B2 B3");
  CHECK(order(2, 1, 4) == "F0 B0 F1 B1 F2 B2 F3 B3");
  CHECK(order(4, 0, 2) == "F0 F1 B0 B1");
  CHECK(order(4, 2, 2) == "F0 F1 B0 B1");
  CHECK(order(4, 3, 2) == "F0 B0 F1 B1");
  for (int stages = 2; stages <= 8; ++stages)
    for (int micros = 1; micros <= 16; ++micros)
      for (int stage = 0; stage < stages; ++stage)
        CHECK(order(stages, stage, micros) == text_of(deepspeed_order(stages, stage, micros)));
}

TEST_CASE("schedule: interleaved is Megatron-LM's") {
  const auto order = [](int stage) {
    return order_text(PipelineSchedule::interleaved, 2, 2, stage, 4);
  };
  CHECK(order(0) == "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3");
  CHECK(order(1) == "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3");
  CHECK(order_text(PipelineSchedule::interleaved, 2, 3, 1, 2) ==
        "F0 F1 F0' F1' F0'' B0'' F1'' B1'' B0' B1' B0 B1");
}

TEST_CASE("schedule: zb-h1 fills waits with weight gradients") {
  const auto order = [](int stage) { return order_text(PipelineSchedule::zb_h1, 3, 1, stage, 4); };
  CHECK(order(0) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  CHECK(order(1) == "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3");
  CHECK(order(2) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
}

TEST_CASE("schedule: zb-v takes gradients first, and of them the second part's") {
  const auto order = [](int stage) { return order_text(PipelineSchedule::zb_v, 2, 2, stage, 2); };
  CHECK(order(0) == "F0 F1 F0' B0' F1' B1' B0 W0' B1 W1' W0 W1");
  CHECK(order(1) == "F0 F0' F1 F1' B0' B0 B1' B1 W0' W0 W1' W1");
}

TEST_CASE("schedule: a part is a chunk of a stage") {
  for (const PipelineCase& c : pipeline_cases()) {
    const int chunks = chunks_of(c.schedule, c.virtual_stages);
    std::set<int> parts;
    for (int stage = 0; stage < c.stages; ++stage)
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const int part = part_of(c.schedule, c.stages, stage, chunk);
        CHECK(chunk_of_part(c.schedule, c.stages, part) == StageChunk{stage, chunk});
        parts.insert(part);
      }
    CHECK(parts.size() == static_cast<size_t>(c.stages * chunks));
    CHECK(*parts.begin() == 0);
    CHECK(*parts.rbegin() == c.stages * chunks - 1);
  }
  CHECK(part_of(PipelineSchedule::interleaved, 4, 1, 2) == 9);
  CHECK(part_of(PipelineSchedule::zb_v, 4, 0, 1) == 7);
  CHECK(part_of(PipelineSchedule::zb_v, 4, 3, 1) == 4);
}

TEST_CASE("schedule: numbers that a schedule cannot have are refused") {
  using P = PipelineSchedule;
  const auto error = [](P schedule, int stages, int chunks, int micros) {
    return schedule_error(schedule, stages, chunks, micros).value_or("");
  };
  CHECK(error(P::one_f_one_b, 4, 1, 1).empty());
  CHECK(error(P::zb_h1, 4, 1, 2).empty());
  CHECK(error(P::gpipe, 0, 1, 1) == "a pipeline of 0 stages: expected one or more");
  CHECK(error(P::gpipe, 2, 1, 0) == "a pipeline with 0 micro-batches: expected one or more");
  CHECK(error(P::gpipe, 2, 2, 1) ==
        "schedule gpipe with 2 virtual stages: expected one, or schedule interleaved");
  CHECK(error(P::interleaved, 2, 1, 4) ==
        "schedule interleaved with 1 virtual stage: expected two or more, or schedule 1f1b");
  CHECK(error(P::interleaved, 4, 2, 6) ==
        "schedule interleaved with 6 micro-batches on 4 stages: expected a multiple of the stages");
  CHECK(error(P::zb_v, 4, 1, 8) == "schedule zb-v with 1 virtual stage: expected two");
  CHECK_THROWS_AS(stage_order(P::zb_v, 4, 1, 0, 8), InternalError);
  CHECK_THROWS_AS(stage_order(P::gpipe, 4, 1, 4, 8), InternalError);
}
