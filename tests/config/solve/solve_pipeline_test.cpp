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
  CHECK(schedule("InterleavedZeroBubble") == PipelineSchedule::zb_h1);
  CHECK(schedule("ZBVZeroBubble") == PipelineSchedule::zb_v);
}

TEST_CASE("pipeline: schedules with several parts on a stage have two by default") {
  const auto of = [](const std::string& members) {
    return ask(pipeline(members, R"(, "gradient_accumulation_steps": 4)"), {}, 2).job().pipeline;
  };
  CHECK(of(R"("stages": 2, "schedule": "zb-v")").virtual_stages == 2);
  CHECK(of(R"("stages": 2, "schedule": "Interleaved1F1B")").schedule ==
        PipelineSchedule::interleaved);
  CHECK(of(R"("stages": 2, "schedule": "interleaved")").virtual_stages == 2);
  CHECK(of(R"("stages": 2, "schedule": "interleaved", "virtual_stages": 3)").virtual_stages == 3);
  CHECK(of(R"("stages": 2, "schedule": "zb-h1")").virtual_stages == 1);
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
  CHECK_THAT(error(R"("stages": 2, "partition": "type:(")"),
             Catch::StartsWith("c.json:1:28: pipeline.partition: \"type:(\": expected a regular "
                               "expression ("));
  CHECK(error("\"stages\": 2, \"partition\": \"type:" + std::string(201, 'x') + "\"") ==
        "c.json:1:28: pipeline.partition: expected a regular expression of at most 200 characters, "
        "found 201");
  CHECK_THAT(error(R"("stages": 2, "partition": [0, 4, 8])"),
             Catch::Contains("expected the first layers of 2 stages"));
  CHECK_THAT(error(R"("stages": 2, "partition": [0, 99])"), Catch::Contains("99 is not a layer"));
  CHECK_THAT(error(R"("stages": 2, "partition": [0, 4], "schedule": "zb-v")"),
             Catch::Contains("expected the first layers of 2 stages x 2 parts"));
  CHECK_THAT(
      error(R"("stages": 2, "schedule": "zb-v")", 4, R"(, "dstrain": {"model": {"n_layer": 1}})"),
      Catch::Contains("2 stages x 2 parts are more than the 3 layers of the model"));
  CHECK_THAT(error(R"("stages": 2, "virtual_stages": 3)"),
             Catch::Contains("schedule 1f1b with 3 virtual stages: expected one, or schedule"));
  CHECK_THAT(error(R"("stages": 2, "schedule": "zb-v", "virtual_stages": 3)"),
             Catch::Contains("schedule zb-v with 3 virtual stages: expected two"));
  CHECK_THAT(error(R"("stages": 2, "schedule": "interleaved", "virtual_stages": 1)"),
             Catch::Contains("expected two or more, or schedule 1f1b"));
  CHECK_THAT(
      error(R"("stages": 2, "schedule": "interleaved")", 4,
            R"(, "gradient_accumulation_steps": 3)"),
      Catch::Contains("schedule interleaved with 3 micro-batches on 2 stages: expected a "
                      "multiple of the stages; gradient_accumulation_steps is their number"));
}

TEST_CASE("pipeline: a list of first layers") {
  const Job job = ask(pipeline(R"("stages": 2, "partition": [0, 5])"), {}, 2).job();
  CHECK(job.pipeline.partition == "list");
  CHECK(job.pipeline.first_layers == std::vector<int64_t>{0, 5});
}

TEST_CASE("pipeline: a regular expression stays as it is written") {
  const auto partition = [](const std::string& text) {
    return ask(pipeline(R"("stages": 2, "partition": ")" + text + "\""), {}, 2)
        .job()
        .pipeline.partition;
  };
  CHECK(partition("type:\\\\D+$") == "type:\\D+$");
  CHECK(partition("Type:Blocks") == "type:Blocks");
  CHECK(partition("Uniform") == "uniform");
}
