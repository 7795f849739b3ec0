#include "runtime/plan/report/print.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("the columns of the printed plan stand under each other, however long the names are") {
  Job job = small_job();
  job.model.set("n_layer", 101);
  const std::string text =
      plan_to_text(make_rank_plan(job, data_place(0, 2), fake_inputs(64)), "t");
  std::istringstream lines(text.substr(text.find("\nqueue ") + 1));
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> titles = {"when", "instruction", "group", "reads", "writes"};
  std::vector<size_t> columns;
  for (const std::string& title : titles) columns.push_back(line.find(" " + title + " ") + 1);
  const size_t width = line.size();
  int rows = 0;
  for (; std::getline(lines, line) && !line.empty(); ++rows) {
    CAPTURE(line);
    REQUIRE(line.size() <= width);
    for (const size_t column : columns) CHECK(line.substr(column - 2, 2) == "  ");
  }
  CHECK(rows > 1000);
}

TEST_CASE("the printed plan holds the table, and its JSON adds up") {
  const RankPlan rank = make_rank_plan(small_job(), data_place(1, 2), fake_inputs(64));
  const std::string text = plan_to_text(rank, "rank 1 of 2");
  CHECK_THAT(text, Catch::StartsWith("rank 1 of 2 | f32 | 3 micro-batches"));
  CHECK_THAT(text, Catch::Contains("attention_grad") && Catch::Contains("finish_gradients"));
  const auto json = nlohmann::json::parse(plan_to_json(rank));
  CHECK(json["ranks"] == 2);
  CHECK(json["rank"] == 1);
  CHECK(json["instructions"].size() == rank.train.order.size());
  int64_t sum = 0;
  for (const auto& [name, bytes] : json["memory"].items())
    if (name != "total") sum += bytes.get<int64_t>();
  CHECK(sum == json["memory"]["total"]);
}

TEST_CASE("the printed plan names the layers of a pipeline's stage") {
  Job job = small_job();
  job.pipeline.stages = 2;
  job.pipeline.partition = "list";
  job.pipeline.first_layers = {0, 2};
  const RankPlan first = plan_of(job, 0), second = plan_of(job, 1);
  CHECK_THAT(plan_to_text(first, "t"),
             Catch::Contains("\n2 pipeline stages\nstage 0 of 2: layers 0 to 1\n"));
  CHECK_THAT(plan_to_text(second, "t"), Catch::Contains("\nstage 1 of 2: layers 2 to 3\n"));
  CHECK(nlohmann::json::parse(plan_to_json(second))["layers"] == "2 to 3");
  const RankPlan alone = plan_of(small_job(), 0);
  CHECK_THAT(plan_to_text(alone, "t"), !Catch::Contains("stage"));
  CHECK_FALSE(nlohmann::json::parse(plan_to_json(alone)).contains("layers"));
}

TEST_CASE(
    "rows that a tensor group gathers are no parameters, and what it adds are sums over ranks") {
  Job job = small_job();
  job.ranks = job.tensor_ranks = 2;
  job.model = GptLite{.n_layer = 2, .n_embd = 12, .n_head = 2, .block_size = 8, .vocab_size = 11};
  job.batch = {6, 2, 3};
  const auto text_of = [&job] {
    return plan_to_text(make_rank_plan(job, place_of(job, 1), fake_inputs()), "t");
  };
  CHECK_THAT(text_of(), Catch::Contains(" in tensor group"));
  CHECK_THAT(text_of(), !Catch::Contains("parameters are sharded"));
  CHECK_THAT(text_of(), Catch::Contains("sums over ranks: in rank order in f32, rounded once"));
  job.ranks = 4;
  job.batch = {12, 2, 3};
  job.zero_stage = 3;
  job.gather = {.param_persistence = 0};
  CHECK_THAT(text_of(), Catch::Contains("parameters are sharded: "));
}

TEST_CASE("the printed plan says which sum over ranks the run uses") {
  const auto text_of = [](const Job& job, int ranks) {
    return plan_to_text(make_rank_plan(job, data_place(0, ranks), fake_inputs()), "t");
  };
  const auto json_of = [](const Job& job) {
    return nlohmann::json::parse(
        plan_to_json(make_rank_plan(job, data_place(0, 2), fake_inputs())));
  };
  const std::string in_order = "sums over ranks: in rank order in f32, rounded once";
  Job job = small_job();
  CHECK_THAT(text_of(job, 2), Catch::Contains(in_order));
  CHECK_THAT(text_of(job, 1), !Catch::Contains("sums over ranks"));
  job.rank_order_sums = false;
  CHECK_THAT(text_of(job, 2), Catch::Contains(in_order));  // a CPU has no other
  CHECK(json_of(job)["sums"] == "rank_order");
  job.device = DeviceChoice::cuda;
  CHECK_THAT(text_of(job, 2), Catch::Contains("sums over ranks: NCCL's own"));
  CHECK(json_of(job)["sums"] == "nccl");
  job.rank_order_sums = true;
  CHECK_THAT(text_of(job, 2), Catch::Contains(in_order));
}

TEST_CASE("the printed plan names a group for collectives alone") {
  Job job = sharded_job(3);
  job.offload.optimizer = OffloadTo::nvme;
  job.offload.parameters = OffloadTo::cpu;
  const auto with_group = [](const std::string& text, const std::string& op) {
    return text.find(op + " in ") != std::string::npos;
  };
  const std::string whole = plan_to_text(plan_of(job), "t");
  for (const char* op : {"copy", "swap_in", "swap_out"}) {
    CHECK_THAT(whole, Catch::Contains(op));
    CHECK_FALSE(with_group(whole, op));
  }
  CHECK_FALSE(with_group(whole, "all_gather"));
  job.offload = {};
  job.shards = {.ranks = 2, .parameters = true};
  CHECK(with_group(plan_to_text(plan_of(job), "t"), "all_gather"));
}

TEST_CASE("the printed plan says what stays gathered") {
  const std::string lean = plan_to_text(plan_of(sharded_job(3)), "lean");
  CHECK_THAT(lean, Catch::Contains("0 of 6 units (0 elements) are gathered once") &&
                       Catch::Contains("in 10 gathers"));
  Job job = sharded_job(3);
  job.gather = {};
  CHECK_THAT(plan_to_text(plan_of(job), "kept"), Catch::Contains("6 of 6 units"));
  CHECK_THAT(plan_to_text(plan_of(sharded_job(2)), "two"), !Catch::Contains("gathered once"));
}
