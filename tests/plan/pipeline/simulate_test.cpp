#include "runtime/plan/pipeline/simulate.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/plan/pipeline/pipelines.h"

using namespace dstrain;

namespace {

constexpr PhaseSeconds kWhole = {1, 2, 0}, kSplit = {1, 1, 1};

PipelineTimes simulate(const PipelineOrders& orders, PhaseSeconds times, double message_time = 0) {
  size_t parts = 0;
  for (const auto& of_stage : orders.parts) parts += of_stage.size();
  return run_orders(orders, std::vector<PhaseSeconds>(parts, times), message_time);
}

PipelineTimes simulate(PipelineSchedule schedule, int stages, int micros, PhaseSeconds times) {
  const int chunks = schedule == PipelineSchedule::zb_v ? 2 : 1;
  return simulate(pipeline_orders(schedule, stages, chunks, micros), times);
}

std::string error_of(const PipelineOrders& orders) {
  const PipelineTimes times = simulate(orders, kWhole);
  CHECK(times.tasks.empty() == times.error.has_value());
  return times.error.value_or("");
}

std::vector<int> held(PipelineSchedule schedule, int stages, int chunks, int stage, int micros) {
  return in_flight(stage_order(schedule, stages, chunks, stage, micros), chunks);
}

}  // namespace

TEST_CASE("simulate: no schedule waits for ever, and no task begins before its input is there") {
  for (const PipelineCase& c : pipeline_cases()) {
    INFO(c.text());
    const PipelineOrders orders = pipeline_orders(c.schedule, c.stages, c.virtual_stages, c.micros);
    const PipelineTimes times = simulate(orders, kWhole, 0.5);
    CHECK(times.error.value_or("") == "");
    CHECK(times.bubble >= -1e-9);
    bool in_order = true;
    for (size_t stage = 0; stage < orders.stages(); ++stage) {
      REQUIRE(times.tasks[stage].size() == orders.tasks[stage].size());
      double before = 0;
      for (const TaskTime& task : times.tasks[stage]) {
        in_order = in_order && task.begin >= before && task.end <= times.length;
        before = task.end;
      }
    }
    CHECK(in_order);
  }
}

TEST_CASE("simulate: a step of gpipe and of 1f1b takes 3 (M + S - 1) where backward takes two") {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b})
    for (int stages = 1; stages <= 8; ++stages)
      for (int micros = 1; micros <= 16; ++micros) {
        const PipelineTimes times = simulate(schedule, stages, micros, kWhole);
        CHECK(times.length == (stages == 1 ? 3 * micros : 3 * (micros + stages - 1)));
        CHECK(times.bubble == Approx((stages - 1.0) / (micros + stages - 1.0)).margin(1e-12));
      }
}

TEST_CASE("simulate: a step of the interleaved schedule has a bubble of (S - 1) / v") {
  for (int stages = 2; stages <= 8; ++stages)
    for (int chunks = 2; chunks <= 4; ++chunks)
      for (int micros = stages; micros <= 16; micros += stages) {
        const PipelineTimes times = simulate(
            pipeline_orders(PipelineSchedule::interleaved, stages, chunks, micros), kWhole);
        CHECK(times.length == 3 * (micros * chunks + stages - 1));
      }
}

TEST_CASE("simulate: a step of zb-h1 takes 3 M + S - 1 units, and one of zb-v about 6 M + S") {
  for (int stages = 2; stages <= 8; ++stages)
    for (int micros = stages; micros <= 16; ++micros) {
      INFO(stages << " stages, " << micros << " micro-batches");
      CHECK(simulate(PipelineSchedule::zb_h1, stages, micros, kSplit).length ==
            3 * micros + stages - 1);
      const double v = simulate(PipelineSchedule::zb_v, stages, micros, kSplit).length;
      CHECK(v >= 6 * micros);
      CHECK(v <= 6 * micros + stages + 4);
    }
}

TEST_CASE("simulate: micro-batches in flight") {
  for (int stages = 2; stages <= 8; ++stages)
    for (int micros = 1; micros <= 16; ++micros)
      for (int s = 0; s < stages; ++s) {
        using P = PipelineSchedule;
        CHECK(held(P::gpipe, stages, 1, s, micros) == std::vector{micros});
        CHECK(held(P::one_f_one_b, stages, 1, s, micros) ==
              std::vector{std::min(stages - s, micros)});
        CHECK(held(P::zb_h1, stages, 1, s, micros)[0] <= std::min(stages, micros));
        for (const int chunk : held(P::zb_v, stages, 2, s, micros))
          CHECK(chunk <= std::min(2 * stages - 1, micros));
      }
  CHECK(held(PipelineSchedule::gpipe, 1, 1, 0, 9) == std::vector{1});
  CHECK(held(PipelineSchedule::interleaved, 4, 2, 0, 8) == std::vector{8, 4});
}

TEST_CASE("simulate: messages take their time while both stages work on") {
  PipelineOrders orders{{{{Phase::forward, 0, 0},
                          {Phase::forward, 0, 1},
                          {Phase::backward, 0, 0},
                          {Phase::backward, 0, 1}},
                         {{Phase::forward, 0, 0},
                          {Phase::backward, 0, 0},
                          {Phase::forward, 0, 1},
                          {Phase::backward, 0, 1}}},
                        {{0}, {1}}};
  const PipelineTimes times = run_orders(orders, {{1, 2, 0}, {3, 4, 0}}, 0.5);
  using Row = std::vector<TaskTime>;
  CHECK(times.tasks[0] == Row{{0, 1}, {1, 2}, {9, 11}, {16, 18}});
  CHECK(times.tasks[1] == Row{{1.5, 4.5}, {4.5, 8.5}, {8.5, 11.5}, {11.5, 15.5}});
  CHECK(times.length == 18);
  CHECK(times.bubble == Approx(1 - 20.0 / 36));
}

TEST_CASE("simulate: orders that do not fit together are reported with stage and task") {
  const PipelineOrders whole = pipeline_orders(PipelineSchedule::one_f_one_b, 2, 1, 3);
  REQUIRE(text_of(whole.tasks[0]) == "F0 F1 B0 F2 B1 B2");
  REQUIRE(error_of(whole).empty());
  PipelineOrders orders = whole;
  std::swap(orders.tasks[0][1], orders.tasks[0][2]);
  CHECK(error_of(orders).empty());  // slower, and possible
  std::swap(orders.tasks[0][0], orders.tasks[0][1]);
  CHECK(error_of(orders) ==
        "stage 0, task 0: backward of micro-batch 0 in chunk 0 waits for ever for forward of "
        "micro-batch 0 in chunk 0 of stage 0, its task 1; stage 0, task 0: backward of micro-batch "
        "0 in chunk 0 waits for ever for backward of micro-batch 0 in chunk 0 of stage 1, its task "
        "1; stage 1, task 0: forward of micro-batch 0 in chunk 0 waits for ever for forward of "
        "micro-batch 0 in chunk 0 of stage 0, its task 1");
  orders = whole;
  std::swap(orders.tasks[0][0], orders.tasks[0][1]);
  CHECK(error_of(orders) ==
        "stage 1, task 0: forward of micro-batch 0 in chunk 0 takes what stage 0 sends of "
        "micro-batch 1");
  orders = whole;
  orders.tasks[0].erase(orders.tasks[0].begin() + 3);
  CHECK_THAT(
      error_of(orders),
      Catch::StartsWith("stage 0, task 4: backward of micro-batch 2 in chunk 0 waits for ever "
                        "for forward of micro-batch 2 in chunk 0 of stage 0, which is missing;"));
  orders = whole;
  orders.tasks[0].pop_back();
  CHECK(error_of(orders) == "stage 0: backward of micro-batch 2 in chunk 0 is missing");
  orders = whole;
  orders.tasks[1].push_back({Phase::forward, 0, 2});
  CHECK(error_of(orders) == "stage 1, task 6: forward of micro-batch 2 in chunk 0 is there twice");
}

TEST_CASE(
    "simulate: every missing task of every schedule is reported, and every swapped neighbour "
    "that matters") {
  for (const PipelineSchedule schedule : kSchedules) {
    const PipelineOrders whole = pipeline_orders(
        schedule, 3,
        schedule == PipelineSchedule::interleaved ? 2 : 1 + (schedule == PipelineSchedule::zb_v),
        6);
    for (size_t stage = 0; stage < whole.stages(); ++stage)
      for (size_t i = 0; i < whole.tasks[stage].size(); ++i) {
        PipelineOrders orders = whole;
        auto& tasks = orders.tasks[stage];
        tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(i));
        CHECK(simulate(orders, kSplit).error.has_value());
        tasks = whole.tasks[stage];
        if (i == 0 || tasks[i].phase != tasks[i - 1].phase ||
            tasks[i].chunk != tasks[i - 1].chunk || tasks[i].phase == Phase::weight_grad)
          continue;
        std::swap(tasks[i], tasks[i - 1]);
        CHECK(simulate(orders, kSplit).error.has_value());
      }
  }
}

TEST_CASE("simulate: parts that stages do not have once each are an internal error") {
  PipelineOrders orders = pipeline_orders(PipelineSchedule::gpipe, 2, 1, 1);
  orders.parts = {{0}, {0}};
  CHECK_THROWS_AS(simulate(orders, kWhole), InternalError);
  orders.parts = {{0}, {2}};
  CHECK_THROWS_AS(simulate(orders, kWhole), InternalError);
}
