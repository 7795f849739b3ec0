#include "runtime/engine/step/trace.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/ir/rule.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

Job small_job() {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 16, .n_head = 2, .block_size = 8, .vocab_size = 11};
  job.batch = {4, 2, 2};
  return job;
}

}  // namespace

TEST_CASE("every instruction of a traced step has its time, one after the other, within the step") {
  const RandomDataset data(11);
  TestRank test_rank(small_job(), data);
  StepTrace trace;
  trace.prepare(test_rank.plans.train);
  test_rank.state.step = 1;
  StepContext context{
      .state = &test_rank.state, .batch = {&data, Split::train, 0}, .trace = &trace};
  test_rank.executor.run(context);
  REQUIRE(trace.issues.size() == test_rank.plans.train.order.size());
  int64_t before = trace.whole.begin_ns;
  for (const TimeSpan& span : trace.issues) {
    CHECK(span.begin_ns >= before);
    CHECK(span.end_ns >= span.begin_ns);
    before = span.end_ns;
  }
  CHECK(before <= trace.whole.end_ns);
  const StepSplit split = split_of(trace);
  CHECK(split.compute > 0);
  CHECK(split.other >= 0);
  CHECK((split.compute + split.exposed_comm + split.other) * 1e9 ==
        Approx(static_cast<double>(trace.whole.size())));
}

TEST_CASE("the file is one event per instruction, on the track of its queue") {
  const RandomDataset data(11);
  TestRank test_rank(small_job(), data);
  std::vector<StepTrace> traces(2);
  for (size_t i = 0; i < traces.size(); ++i) {
    traces[i].step = static_cast<int64_t>(i) + 7;
    traces[i].prepare(test_rank.plans.train);
    StepContext context{
        .state = &test_rank.state, .batch = {&data, Split::train, 0}, .trace = &traces[i]};
    test_rank.executor.run(context);
  }
  const auto path = std::filesystem::temp_directory_path() /
                    ("dstrain-trace-" + std::to_string(::getpid()) + ".json");
  write_trace(path.string(), traces, test_rank.comm);
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  std::filesystem::remove(path);
  std::map<int, int> events;  // by track
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    CHECK(event["pid"] == 0);
    CHECK(event["dur"].get<double>() > 0);
    ++events[event["tid"].get<int>()];
  }
  CHECK(events[0] == 2);  // the steps
  int compute = 0;
  for (const Issue& issue : test_rank.plans.train.order)
    compute +=
        rule_of(
            test_rank.plans.train.program.instructions[static_cast<size_t>(issue.instruction)].op)
            .queue == Queue::compute;
  CHECK(events[1] == 2 * compute);
}
