#include "runtime/config/solve/solve_pipeline.h"

#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

std::string pipeline(const std::string& members, const std::string& rest = "") {
  return trains_with("\"pipeline\": {" + members + "}" + rest);
}

}  // namespace

TEST_CASE("pipeline: the batch is divided among the ranks of a data-parallel group") {
  const std::string text = R"({"train_batch_size": 48, "gradient_accumulation_steps": 4,
                               "pipeline": {"stages": 3}})";
  const Job job = ask(text, {}, 6).job();
  CHECK(job.pipeline.stages == 3);
  CHECK(job.pipeline.schedule == PipelineSchedule::one_f_one_b);
  CHECK(job.pipeline.partition == "parameters");
  CHECK(job.data_ranks() == 2);
  CHECK(job.batch == BatchConfig{48, 6, 4});
}

TEST_CASE("pipeline: one stage is a run without a pipeline") {
  const Job job =
      ask(pipeline(R"("stages": 1, "schedule": "gpipe", "virtual_stages": 3)"), {}, 2).job();
  CHECK(job.pipeline == PipelineConfig{});
}

TEST_CASE("pipeline: schedules have our names and torch's, in any case") {
  const auto schedule = [](const std::string& name) {
    return ask(pipeline("\"stages\": 2, \"schedule\": \"" + name + "\""), {}, 2)
        .job()
        .pipeline.schedule;
  };
  CHECK(schedule("GPipe") == PipelineSchedule::gpipe);
  CHECK(schedule("LoopedBFS") == PipelineSchedule::gpipe);
  CHECK(schedule("1F1B") == PipelineSchedule::one_f_one_b);
}

TEST_CASE("pipeline: what cannot be is refused with the reason") {
  const auto error = [](const std::string& members, int64_t ranks = 4,
                        const std::string& rest = "") {
    return ask(pipeline(members, rest), {}, ranks).error();
  };
  CHECK_THAT(error(R"("stages": 3)"),
             Catch::Contains("3 stages do not divide 4 ranks (--num_gpus)"));
  CHECK_THAT(error(R"("stages": 4)", 4, R"(, "dstrain": {"model": {"n_layer": 1}})"),
             Catch::Contains("4 stages are more than the 3 layers of the model"));
  CHECK_THAT(error(R"("stages": 2, "partition": "halves")"), Catch::Contains("type:REGEX"));
  CHECK_THAT(error(R"("stages": 2, "partition": [0, 4, 8])"),
             Catch::Contains("expected the first layers of 2 stages"));
  CHECK_THAT(error(R"("stages": 2, "partition": [0, 99])"), Catch::Contains("99 is not a layer"));
  CHECK_THAT(error(R"("stages": 2, "schedule": "zb-v")"), Catch::Contains("not available yet"));
}

TEST_CASE("pipeline: a list of first layers") {
  const Job job = ask(pipeline(R"("stages": 2, "partition": [0, 5])"), {}, 2).job();
  CHECK(job.pipeline.partition == "list");
  CHECK(job.pipeline.first_layers == std::vector<int64_t>{0, 5});
}
