#include "runtime/engine/traces/step_traces.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "tests/engine/test_rank.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

Job traced_job(const std::string& output) {
  Job job;
  job.model = GptLite{.n_layer = 1, .n_embd = 16, .n_head = 2, .block_size = 8, .vocab_size = 11};
  job.batch = {2, 2, 1};
  job.output = output;
  return job;
}

// One rank, whose steps are numbered from 1, and its traces.
struct TracedRank {
  explicit TracedRank(const Job& job) : rank(job, data), traces(rank.job, &board) {}

  // Runs a step as the trainer does. `asked`: the end of the step says that a rank was asked for something. Returns
  // whether the step was traced.
  bool step(bool asked = false) {
    StepTrace* const trace = traces.begin(++rank.state.step, rank.plans.train, false);
    StepContext context{.state = &rank.state, .batch = {&data, Split::train, 0}, .trace = trace};
    rank.executor.run(context);
    traces.end_step(rank.comm, asked);
    return trace != nullptr;
  }
  // Runs steps. Returns the numbers of those that were traced.
  std::set<int64_t> steps(int count) {
    std::set<int64_t> traced;
    for (int i = 0; i < count; ++i)
      if (step()) traced.insert(rank.state.step);
    return traced;
  }

  RandomDataset data{11};
  RankBoard board = RankBoard::create(1);
  TestRank rank;
  StepTraces traces;
};

// The numbers of the steps in a file.
std::set<int64_t> steps_in(const fs::path& file) {
  std::set<int64_t> steps;
  std::ifstream text(file);
  REQUIRE(text.good());
  const nlohmann::json trace = nlohmann::json::parse(text);
  for (const nlohmann::json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("tid") == 0)
      steps.insert(std::stoll(event.at("name").get<std::string>().substr(5)));
  return steps;
}

size_t files_in(const fs::path& directory) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

using Steps = std::set<int64_t>;

TEST_CASE("without a request no step is traced and nothing is written") {
  const TempDir dir;
  TracedRank run(traced_job(dir.path()));
  CHECK(run.steps(8).empty());
  CHECK_FALSE(run.traces.is_requested());
  run.traces.finish(run.rank.comm);
  CHECK(files_in(dir.path()) == 0);
}

TEST_CASE(
    "after the ranks have agreed on a request six steps are traced, and written once they have "
    "run") {
  const TempDir dir;
  TracedRank run(traced_job(dir.path()));
  run.steps(2);
  run.board.request_trace();
  CHECK(run.traces.is_requested());
  CHECK(run.steps(1).empty());  // the ranks have not agreed yet
  CHECK_FALSE(run.step(true));
  CHECK_FALSE(run.traces.is_requested());
  CHECK(run.steps(5) == Steps{5, 6, 7, 8, 9});
  CHECK(files_in(dir.path()) == 0);
  CHECK(run.steps(3) == Steps{10});
  CHECK(files_in(dir.path()) == 1);
  CHECK(steps_in(dir.path() + "/trace_step_5.json") == Steps{5, 6, 7, 8, 9, 10});
}

TEST_CASE("a rank that is asked for something else takes no trace") {
  const TempDir dir;
  TracedRank run(traced_job(dir.path()));
  CHECK_FALSE(run.step(true));
  CHECK(run.steps(3).empty());
}

TEST_CASE(
    "a request while a trace is being taken changes nothing, and one after it is another one") {
  const TempDir dir;
  TracedRank run(traced_job(dir.path()));
  run.board.request_trace();
  run.traces.accept_request(true);
  run.steps(2);
  run.traces.accept_request(true);  // of another rank
  run.traces.accept_request(true);
  CHECK(run.steps(6) == Steps{3, 4, 5, 6});
  CHECK(files_in(dir.path()) == 1);
  CHECK(steps_in(dir.path() + "/trace_step_1.json") == Steps{1, 2, 3, 4, 5, 6});
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  run.board.request_trace();
  CHECK(run.traces.is_requested());
  run.traces.accept_request(true);
  CHECK(run.steps(6) == Steps{9, 10, 11, 12, 13, 14});
  CHECK(files_in(dir.path()) == 2);
}

TEST_CASE("a rank takes part in the trace that another one was asked for") {
  const TempDir dir;
  TracedRank run(traced_job(dir.path()));
  run.traces.accept_request(true);
  run.board.request_trace();  // the same signal, which reaches this rank later
  CHECK_FALSE(run.traces.is_requested());
  CHECK(run.steps(7) == Steps{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a run that ends during a trace writes the steps that it has") {
  const TempDir dir;
  TracedRank run(traced_job(dir.path()));
  run.traces.accept_request(true);
  SECTION("some") {
    CHECK(run.steps(2) == Steps{1, 2});
    run.traces.finish(run.rank.comm);
    CHECK(steps_in(dir.path() + "/trace_step_1.json") == Steps{1, 2});
  }
  SECTION("none") {
    run.traces.finish(run.rank.comm);
    CHECK(files_in(dir.path()) == 0);
  }
}

TEST_CASE("the trace of a run's first steps comes before one that is asked for") {
  const TempDir dir;
  Job job = traced_job(dir.path());
  job.trace = dir.path() + "/first.json";
  TracedRank run(job);
  run.traces.accept_request(true);
  CHECK(run.steps(14).size() == 12);
  run.traces.finish(run.rank.comm);
  CHECK(steps_in(dir.path() + "/first.json") == Steps{1, 2, 3, 4, 5, 6});
  CHECK(steps_in(dir.path() + "/trace_step_7.json") == Steps{7, 8, 9, 10, 11, 12});
}

TEST_CASE("traced steps have the bits of others") {
  const TempDir dir;
  TracedRank run(traced_job(dir.path())), traced(traced_job(dir.path()));
  traced.traces.accept_request(true);
  for (int i = 0; i < 8; ++i) {
    run.rank.state.lr = traced.rank.state.lr = 0.01F;
    CHECK_FALSE(run.step());
    CHECK(traced.step() == (i < 6));
    CHECK(run.rank.state.loss_sum == traced.rank.state.loss_sum);
    CHECK(run.rank.state.grad_norm == traced.rank.state.grad_norm);
  }
}

TEST_CASE("a trace takes the place of no file, and one that cannot be written ends no run") {
  const TempDir dir;
  CHECK(new_trace_file(dir.path(), 7) == dir.path() + "/trace_step_7.json");
  std::ofstream(dir.path() + "/trace_step_1.json") << "mine";
  fs::create_symlink("nowhere", dir.path() + "/trace_step_1_2.json");
  CHECK(new_trace_file(dir.path(), 1) == dir.path() + "/trace_step_1_3.json");
  TracedRank run(traced_job(dir.path()));
  run.traces.accept_request(true);
  run.steps(6);
  CHECK(fs::file_size(dir.path() + "/trace_step_1.json") == 4);
  CHECK(steps_in(dir.path() + "/trace_step_1_3.json") == Steps{1, 2, 3, 4, 5, 6});

  TracedRank homeless(traced_job(dir.path() + "/gone"));
  homeless.traces.accept_request(true);
  CHECK(homeless.steps(7).size() == 6);
}

}  // namespace
}  // namespace dstrain
