// Whole runs with post_localSGD: against its definition in fp64 (make_local_sgd.py), what they send, and what a run is
// that was stopped between two averages.
#include <fmt/core.h>
#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <stdexcept>

#include "tests/golden/run_program.h"

namespace dstrain::golden {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-5;
constexpr int kSteps = 8;

class LocalRuns {
 public:
  // `group`: 1, or the ranks of each of two pretended hosts.
  Run run(const json& hook, int ranks, int group, const json& more = {},
          std::vector<std::string> arguments = {}) {
    json config = golden_.config;
    config.erase("scheduler");
    config.erase("train_micro_batch_size_per_gpu");
    config["train_batch_size"] = 24;
    config["gradient_accumulation_steps"] = 2;
    config["zero_optimization"] = {{"stage", 0}};
    config["dstrain"]["model"]["activation"] = "gelu";
    config["dstrain"]["steps"] = kSteps;
    if (!hook.is_null()) {
      config["dstrain"]["comm_hook"] = hook;
      config["dstrain"]["comm_hook"]["post_local_gradient_allreduce"] = group > 1;
    }
    if (more.contains("optimizer")) config.erase("optimizer");
    if (!more.is_null()) config.merge_patch(more);
    arguments.insert(arguments.end(), {"--num_gpus", std::to_string(ranks)});
    if (group > 1) {
      arguments.insert(arguments.end(), {"--launcher", "openmpi"});
      ::setenv("DSTRAIN_COMM", "hosts:2", 1);
    }
    struct Restore {
      ~Restore() { ::unsetenv("DSTRAIN_COMM"); }
    } restore;
    return train(golden_, config, scratch_, "run" + std::to_string(runs_++), arguments);
  }
  const std::filesystem::path& folder() const { return golden_.folder; }

 private:
  const Case golden_{"gptlite"};
  const ScratchFolder scratch_;
  int runs_ = 0;
};

json hook_of(int64_t start, int64_t period) {
  return {{"type", "post_localSGD"}, {"start_localSGD_iter", start}, {"period", period}};
}

std::string weights_of(const Run& run) {
  return read_bytes(run.output / "model.safetensors");
}

std::string log_of(const Run& run) {
  return read_bytes(run.output.parent_path() / "log.txt");
}

void check_close(const std::vector<double>& values, const json& steps, const std::string& key) {
  REQUIRE(values.size() == steps.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = steps[i].at(key).get<double>();
    CAPTURE(key, i, values[i], expected);
    CHECK(std::abs(values[i] - expected) <= kTolerance * expected);
  }
}

}  // namespace

TEST_CASE("post_localSGD follows its definition in fp64") {
  LocalRuns runs;
  const json expected = read_json(runs.folder() / "local_sgd.json");
  for (const json& c : expected.at("cases")) {
    CAPTURE(c.at("ranks"), c.at("group"), c.at("start"), c.at("period"));
    const json more = {
        {"optimizer", c.at("optimizer")},
        {"train_batch_size", expected.at("batch")},
        {"gradient_accumulation_steps", expected.at("accumulation")},
        {"gradient_clipping", expected.at("clipping")},
        {"dstrain", {{"eval_interval", 1}, {"eval_samples", expected.at("validation_samples")}}}};
    const Run run =
        runs.run(hook_of(c.at("start"), c.at("period")), c.at("ranks"), c.at("group"), more);
    check_close(run.column("loss"), c.at("steps"), "loss");
    check_close(run.column("grad_norm"), c.at("steps"), "grad_norm");
    check_close(run.validations(), c.at("steps"), "val_loss");
  }
}

TEST_CASE("post_localSGD: validation changes no bit of the training, nor what is saved") {
  LocalRuns runs;
  for (const json& type : {json{}, json{{"bf16", {{"enabled", true}}}}}) {
    json often = type, seldom = type;
    often["dstrain"]["eval_interval"] = 1;
    seldom["dstrain"]["eval_interval"] = 0;
    const Run with = runs.run(hook_of(1, 4), 2, 1, often),
              without = runs.run(hook_of(1, 4), 2, 1, seldom);
    for (const char* key : {"loss", "grad_norm"}) CHECK(with.column(key) == without.column(key));
    CHECK((weights_of(with) == weights_of(without)));
  }
}

TEST_CASE("post_localSGD: a run that was stopped goes on bit for bit") {
  LocalRuns runs;
  struct Setting {
    int ranks, group;
    json more;
  };
  for (const Setting& s : {Setting{2, 1, {{"bf16", {{"enabled", true}}}}}, Setting{4, 2, {}}}) {
    const Run expected =
        runs.run(hook_of(2, 3), s.ranks, s.group, s.more, {"--save_interval", "1"});
    // Before the start, at an average, and between two.
    const std::vector<int> from = s.group > 1 ? std::vector{4} : std::vector{1, 3, 4, 7};
    for (const int step : from) {
      CAPTURE(s.ranks, step);
      const Run resumed = runs.run(
          hook_of(2, 3), s.ranks, s.group, s.more,
          {"--resume", (expected.output / "checkpoints" / fmt::format("step_{}", step)).string()});
      CHECK((weights_of(resumed) == weights_of(expected)));
      CHECK(log_of(resumed).find("their mean goes on") == std::string::npos);
    }
  }
}

TEST_CASE("post_localSGD: other groups go on with the mean, and others without the hook do") {
  LocalRuns runs;
  const Run first = runs.run(hook_of(0, 4), 2, 1, {}, {"--save_interval", "3"});
  const std::string from = (first.output / "checkpoints" / "step_3").string();
  const double loss = first.column("loss").back();
  const Run four = runs.run(hook_of(0, 4), 4, 1, {}, {"--resume", from});
  const Run plain = runs.run({}, 3, 1, {{"zero_optimization", {{"stage", 2}}}}, {"--resume", from});
  for (const Run* run : {&four, &plain}) {
    CHECK(log_of(*run).find("of 2 groups of ranks (post_localSGD)") != std::string::npos);
    CHECK(run->column("loss").back() == Approx(loss).epsilon(0.02));
  }
  // Groups with weights of their own cannot add gradients.
  CHECK_THROWS_WITH(runs.run(hook_of(5, 4), 2, 1, {}, {"--resume", from}),
                    Catch::Contains("use a smaller number"));
}

TEST_CASE("post_localSGD: on one host its groups are one, and a run is the ordinary one") {
  LocalRuns runs;
  json hook = hook_of(2, 3);
  const Run plain = runs.run({}, 2, 1),
            run = runs.run({}, 2, 1, {{"dstrain", {{"comm_hook", hook}}}});
  for (const char* key : {"loss", "grad_norm", "comm_bytes"})
    CHECK(run.column(key) == plain.column(key));
  CHECK((weights_of(run) == weights_of(plain)));
  CHECK(log_of(run).find("all ranks are on one host") != std::string::npos);
}

TEST_CASE("post_localSGD: ranks send in the steps with an average, and alone nothing in others") {
  LocalRuns runs;
  const Run plain = runs.run({}, 2, 1), alone = runs.run(hook_of(2, 3), 2, 1);
  const std::vector<double> sent = alone.column("comm_bytes"), all = plain.column("comm_bytes");
  for (size_t i = 0; i < sent.size(); ++i)
    CHECK(sent[i] == (i < 2 || (i - 2) % 3 == 0 ? all[i] : 0));
}

TEST_CASE("post_localSGD: a step that overflows on one rank is skipped by all") {
  LocalRuns runs;
  const json fp16 = {{"fp16", {{"enabled", true}, {"initial_scale_power", 32}, {"hysteresis", 1}}},
                     {"dstrain", {{"steps", 40}}}};
  const Run run = runs.run(hook_of(0, 3), 3, 1, fp16);
  const auto skipped =
      std::ranges::count_if(run.steps, [](const json& s) { return s["skipped"].get<bool>(); });
  CHECK(skipped > 2);
  CHECK(skipped < 30);
  CHECK_FALSE(run.steps.back()["skipped"].get<bool>());
  CHECK(run.steps.back()["loss"].get<double>() < run.steps.front()["loss"].get<double>());
}

TEST_CASE("post_localSGD: the emulated device does what the CPU does") {
  LocalRuns runs;
  for (const bool narrow : {false, true}) {
    const json more = {{"bf16", {{"enabled", narrow}}}, {"dstrain", {{"eval_interval", 2}}}};
    const double tolerance = narrow ? 0.02 : 1e-5;
    const Run cpu = runs.run(hook_of(1, 3), 2, 1, more),
              device = runs.run(hook_of(1, 3), 2, 1, more, {"--device", "emulated"});
    for (size_t i = 0; i < kSteps; ++i)
      CHECK(device.column("loss")[i] == Approx(cpu.column("loss")[i]).epsilon(tolerance));
    const std::vector<double> of_cpu = cpu.validations(), of_device = device.validations();
    for (size_t i = 0; i < of_cpu.size(); ++i)
      CHECK(of_device.at(i) == Approx(of_cpu[i]).epsilon(tolerance));
  }
}

}  // namespace dstrain::golden
