// Whole runs whose gradients travel as low-rank factors: the same bits at both stages and resumed, the sum that
// factors of full rank are, the bytes of each kind of steps, and skipped steps.
#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/golden/run_program.h"

using namespace dstrain::golden;
using nlohmann::json;

namespace {

constexpr int kSteps = 6, kHalf = 3;

class FactorRuns {
 public:
  // `more`: further members of the configuration.
  Run run(const json& hook, int stage, int ranks, int steps, const json& more = {},
          std::vector<std::string> arguments = {}) {
    json config = golden_.config;
    config["train_batch_size"] = 12;
    config["gradient_accumulation_steps"] = 1;
    config["zero_optimization"] = {{"stage", stage}};
    config["dstrain"]["steps"] = steps;
    if (!hook.is_null()) config["dstrain"]["comm_hook"] = hook;
    if (!more.is_null()) config.merge_patch(more);
    arguments.insert(arguments.end(), {"--num_gpus", std::to_string(ranks)});
    return train(golden_, config, scratch_, "run" + std::to_string(runs_++), arguments);
  }

 private:
  const Case golden_{"gptlite"};
  const ScratchFolder scratch_;
  int runs_ = 0;
};

json power_sgd(int start, int rank = 2) {
  return {
      {"type", "powerSGD"}, {"matrix_approximation_rank", rank}, {"start_powerSGD_iter", start}};
}

void check_equal(const Run& run, const Run& expected) {
  REQUIRE(run.steps.size() == expected.steps.size());
  for (const char* column : {"loss", "grad_norm"})
    CHECK(run.column(column) == expected.column(column));
  CHECK(read_bytes(run.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
}

std::string log_of(const Run& run) {
  return read_bytes(run.output.parent_path() / "log.txt");
}

}  // namespace

TEST_CASE(
    "powerSGD: both stages, with overlap and without, have the same bits, near the plain run") {
  FactorRuns runs;
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    const Run plain = runs.run({}, 0, ranks, kSteps);
    const Run expected = runs.run(power_sgd(2), 0, ranks, kSteps);
    check_equal(runs.run(power_sgd(2), 1, ranks, kSteps), expected);
    check_equal(runs.run(power_sgd(2), 1, ranks, kSteps,
                         {{"zero_optimization", {{"overlap_comm", false}}}}),
                expected);
    const std::vector<double> losses = expected.column("loss"), plain_losses = plain.column("loss");
    for (size_t i = 0; i < 3; ++i)
      CHECK(losses[i] == plain_losses[i]);  // the third is after step 2
    CHECK(losses[4] != plain_losses[4]);
    for (size_t i = 3; i < losses.size(); ++i)
      CHECK(losses[i] == Approx(plain_losses[i]).epsilon(0.02));
    const std::vector<double> sent = expected.column("comm_bytes"),
                              plain_sent = plain.column("comm_bytes");
    for (size_t i = 0; i < sent.size(); ++i) {
      if (i < 2) CHECK(sent[i] == plain_sent[i]);
      if (i >= 2) CHECK(sent[i] < 0.5 * plain_sent[i]);
    }
  }
}

TEST_CASE("factors of full rank are the gradient, and those of bf16 are near it") {
  FactorRuns runs;
  json full = power_sgd(0, 1024);
  full["min_compression_rate"] = 1e-9;
  const Run plain = runs.run({}, 0, 2, kSteps), factors = runs.run(full, 0, 2, kSteps);
  const Run narrow = runs.run(full, 0, 2, kSteps, {{"communication_data_type", "bf16"}});
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    CHECK(factors.column("loss")[i] == Approx(plain.column("loss")[i]).epsilon(1e-5));
    CHECK(factors.column("grad_norm")[i] == Approx(plain.column("grad_norm")[i]).epsilon(1e-4));
    CHECK(narrow.column("loss")[i] == Approx(plain.column("loss")[i]).epsilon(0.01));
    CHECK(narrow.column("comm_bytes")[i] == 0.5 * factors.column("comm_bytes")[i]);
  }
  CHECK(narrow.column("loss") != factors.column("loss"));
}

TEST_CASE("powerSGD: a run that was stopped goes on bit for bit, before the start and after it") {
  FactorRuns runs;
  for (const int start : {1, 4})
    for (const char* type : {"powerSGD", "batched_powerSGD"})
      for (const int stage : {0, 1}) {
        CAPTURE(start, type, stage);
        json hook = power_sgd(start);
        hook["type"] = type;
        const json bf16 = {{"bf16", {{"enabled", true}}}};
        const Run expected = runs.run(hook, stage, 2, kSteps, bf16);
        const Run first =
            runs.run(hook, stage, 2, kHalf, bf16, {"--save_interval", std::to_string(kHalf)});
        const Run second =
            runs.run(hook, 1 - stage, 2, kSteps, bf16, {"--resume", first.output.string()});
        CHECK(read_bytes(second.output / "model.safetensors") ==
              read_bytes(expected.output / "model.safetensors"));
        CHECK(log_of(second).find("codec state") == std::string::npos);
      }
}

TEST_CASE("powerSGD without a warm start goes on bit for bit, and loses more than with one") {
  FactorRuns runs;
  json hook = power_sgd(1);
  const json print = {{"steps_per_print", 1}};
  const Run warm = runs.run(hook, 0, 2, kSteps, print);
  hook["warm_start"] = false;
  const Run expected = runs.run(hook, 0, 2, kSteps, print);
  const Run first = runs.run(hook, 1, 2, kHalf, {}, {"--save_interval", std::to_string(kHalf)});
  const Run second = runs.run(hook, 0, 2, kSteps, {}, {"--resume", first.output.string()});
  CHECK(read_bytes(second.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
  CHECK(expected.column("comm_bytes") == warm.column("comm_bytes"));
  double lost = 0, lost_warm = 0;
  for (size_t i = 1; i < kSteps; ++i) {
    lost += expected.steps[i]["codec_error"].at("factors").get<double>();
    lost_warm += warm.steps[i]["codec_error"].at("factors").get<double>();
  }
  CHECK(lost > lost_warm);
  hook["random_seed"] = 1;
  CHECK(runs.run(hook, 0, 2, kSteps).column("loss") != expected.column("loss"));
}

TEST_CASE("powerSGD: other numbers of ranks go on, and the log says what became of the errors") {
  FactorRuns runs;
  const Run first =
      runs.run(power_sgd(1), 0, 2, kHalf, {}, {"--save_interval", std::to_string(kHalf)});
  const Run expected = runs.run(power_sgd(1), 0, 2, kSteps);
  for (const int ranks : {3, 4}) {
    const Run second =
        runs.run(power_sgd(1), 0, ranks, kSteps, {}, {"--resume", first.output.string()});
    CHECK(log_of(second).find(fmt::format("error feedback of 2 data-parallel ranks goes on in {}",
                                          ranks)) != std::string::npos);
    CHECK(second.steps.back()["loss"].get<double>() ==
          Approx(expected.steps.back()["loss"].get<double>()).epsilon(0.02));
  }
  const Run without = runs.run({}, 0, 2, kSteps, {}, {"--resume", first.output.string()});
  CHECK(log_of(without).find("it is left out") != std::string::npos);
}

TEST_CASE("the trace of a run has the plan of each of its steps") {
  FactorRuns runs;
  const ScratchFolder scratch;
  const std::string file = scratch.path() / "trace.json";
  runs.run(power_sgd(2), 0, 2, 4, {{"dstrain", {{"trace", file}}}});
  std::map<std::string, std::vector<double>> begins;
  const json trace = read_json(file);
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["pid"] == 0) {
      const std::string name = event["name"];
      begins[name.substr(0, name.find(' '))].push_back(event["ts"]);
    }
  REQUIRE(begins["step"].size() == 4);
  REQUIRE(begins["commit_state"].size() == 4);
  CHECK(begins["adam"].size() % 4 == 0);
  for (const double at : begins["commit_state"]) CHECK(at > begins["step"][2]);
  const auto whole = std::ranges::count_if(begins["all_reduce"],
                                           [&](double at) { return at < begins["step"][2]; });
  CHECK(whole > 0);
  CHECK(static_cast<size_t>(whole) + 2 * 3 == begins["all_reduce"].size());
}

TEST_CASE("powerSGD: what factors lose is measured in the steps that send them") {
  FactorRuns runs;
  json full = power_sgd(2, 1024);
  full["min_compression_rate"] = 1e-9;
  const json print = {{"steps_per_print", 1}};
  const Run some = runs.run(power_sgd(2), 0, 2, 4, print), all = runs.run(full, 1, 2, 4, print);
  for (size_t i = 0; i < 4; ++i) {
    for (const Run* run : {&some, &all}) CHECK(run->steps[i].contains("codec_error") == (i >= 2));
    if (i < 2) continue;
    const double lost = some.steps[i]["codec_error"].at("factors"),
                 least = all.steps[i]["codec_error"].at("factors");
    CHECK(lost < 1);
    CHECK(lost > least);  // what a rank has outside of the columns of the sum is all that is left
    CHECK(least > 0);
  }
}

TEST_CASE("powerSGD: steps that overflow leave no trace in what is kept") {
  FactorRuns runs;
  const json fp16 = {{"fp16", {{"enabled", true}, {"initial_scale_power", 32}, {"hysteresis", 1}}}};
  const Run run = runs.run(power_sgd(0), 0, 2, 40, fp16);
  const auto skipped =
      std::ranges::count_if(run.steps, [](const json& s) { return s["skipped"].get<bool>(); });
  CHECK(skipped > 2);
  CHECK(skipped < 30);
  CHECK(run.steps.front()["skipped"].get<bool>());
  CHECK_FALSE(run.steps.back()["skipped"].get<bool>());
  CHECK(run.steps.back()["loss"].get<double>() < run.steps.front()["loss"].get<double>());
}

TEST_CASE("the hook does not go with stages, reductions and types that it cannot have") {
  FactorRuns runs;
  const auto fails = [&](int stage, const json& more, const std::string& text) {
    try {
      runs.run(power_sgd(0), stage, 2, 1, more);
      FAIL("it ran");
    } catch (const std::runtime_error& e) {
      CHECK_THAT(e.what(), Catch::Contains(text));
    }
  };
  fails(2, {}, "use stage 0 or 1");
  fails(0, {{"dstrain", {{"reduce", "micro_batch"}}}}, "use \"boundary\"");
  fails(0, {{"bf16", {{"enabled", true}}}, {"data_types", {{"grad_accum_dtype", "bf16"}}}},
        "factors of fp32 gradients");
}
