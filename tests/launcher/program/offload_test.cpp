// Offload and the capacity of a device, from the shell's side.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using nlohmann::json;

TEST_CASE("a capacity of the device is kept: refused with advice, and offload fits") {
  const RunFolder folder;
  const std::string without = "--set zero_optimization.offload_optimizer.device=none ";
  const auto memory = [&](const std::string& options) {
    RunningProgram plan = folder.start(std::string(DSTRAIN_PROGRAM) +
                                       " plan --config c.json --json " + options + "> plan.json");
    CHECK(plan.wait() == 0);
    return json::parse(folder.read("plan.json"));
  };
  const json resident = memory(without);
  const json moved = memory("--set zero_optimization.offload_optimizer.device=cpu ");
  CHECK(resident["host"]["total"] == 0);
  CHECK(moved["host"]["optimizer"] >= resident["memory"]["optimizer"]);
  CHECK(moved["disk"]["total"] == 0);
  const int64_t limit = resident["memory"]["total"].get<int64_t>() - 1;
  REQUIRE(moved["memory"]["total"] < limit);
  const std::string capacity = fmt::format("--device_memory {} ", limit);
  RunningProgram refused = folder.train(capacity + without);
  CHECK(refused.wait() == 1);
  CAPTURE(refused.text());
  CHECK(refused.wrote("--device_memory allows"));
  CHECK(refused.wrote("--set zero_optimization.offload_optimizer.device=cpu"));
  RunningProgram fits =
      folder.train(capacity + "--set zero_optimization.offload_optimizer.device=cpu ");
  CHECK(fits.wait() == 0);
  const std::string steps = folder.read("out/metrics.jsonl");
  const json step = json::parse(steps.substr(0, steps.find('\n')));
  CHECK(step["peak_bytes"] <= limit);
  CHECK(step["host_bytes"] == moved["host"]["total"]);
}

TEST_CASE("a drive that is not mounted is an error before the start, and nothing is made") {
  const RunFolder folder;
  RunningProgram run = folder.train(
      "--num_gpus 2 --set zero_optimization.offload_optimizer.device=nvme "
      "--set zero_optimization.offload_optimizer.nvme_path=mount/swap");
  CHECK(run.wait() == 1);
  CHECK(only_error(run.text()).starts_with("nvme_path mount/swap: neither this directory nor "));
  CHECK_FALSE(std::filesystem::exists(folder.root / "mount"));
}

TEST_CASE(
    "state on disk: the same weights, nothing left, and checkpoints that do not depend on it") {
  const RunFolder folder;
  const std::string disk =
      "--set zero_optimization.offload_optimizer.device=nvme "
      "--set zero_optimization.offload_optimizer.nvme_path=drive --num_gpus 2 ";
  REQUIRE(folder.train("--num_gpus 2 --save_interval 2").wait() == 0);
  const std::string expected = folder.read("out/model.safetensors");
  REQUIRE(!expected.empty());
  RunningProgram run = folder.train(disk + "--save_interval 2 --overwrite");
  CHECK(run.wait() == 0);
  CAPTURE(run.text());
  CHECK(folder.read("out/model.safetensors") == expected);
  CHECK(std::regex_search(
      run.text(), std::regex("nvme: [0-9.]+ [kM]?B of 2 ranks in drive on .*, mounted at /")));
  const std::string steps = folder.read("out/metrics.jsonl");
  CHECK(json::parse(steps.substr(0, steps.find('\n')))["disk_bytes"] > 0);
  CHECK(std::filesystem::is_empty(folder.root / "drive"));
  std::filesystem::remove_all(folder.root / "out/checkpoints/step_4");
  CHECK(folder.train("--resume out --num_gpus 2").wait() == 0);
  CHECK(folder.read("out/model.safetensors") == expected);
  std::filesystem::remove_all(folder.root / "out/checkpoints/step_4");
  CHECK(folder.train(disk + "--resume out").wait() == 0);
  CHECK(folder.read("out/model.safetensors") == expected);
  CHECK(folder.nothing_left());
}

TEST_CASE(
    "with everything offloaded a sixth of the memory suffices, and the weights are the same") {
  const RunFolder folder;
  const std::string model =
      "--set zero_optimization.stage=3 --set dstrain.model.n_layer=24 --set "
      "dstrain.model.n_embd=64 --set bf16.enabled=true --set dstrain.steps=2 --num_gpus 1 "
      "--set zero_optimization.stage3_param_persistence_threshold=0 ";
  const std::string moved =
      "--set zero_optimization.offload_optimizer.device=nvme "
      "--set zero_optimization.offload_optimizer.nvme_path=drive "
      "--set zero_optimization.offload_param.device=cpu --set dstrain.recompute=1 "
      "--set zero_optimization.stage3_max_reuse_distance=0 "
      "--set zero_optimization.overlap_comm=true ";
  RunningProgram plan = folder.start(std::string(DSTRAIN_PROGRAM) +
                                     " plan --config c.json --json " + model + "> plan.json");
  REQUIRE(plan.wait() == 0);
  const int64_t resident = json::parse(folder.read("plan.json"))["memory"]["total"];
  REQUIRE(folder.train(model).wait() == 0);
  const std::string expected = folder.read("out/model.safetensors");
  const std::string capacity = fmt::format("--overwrite --device_memory {} ", resident / 6);
  RunningProgram refused = folder.train(capacity + model);
  CHECK(refused.wait() == 1);
  CHECK(refused.wrote("zero_optimization.offload_param.device=cpu"));
  RunningProgram run = folder.train(capacity + model + moved);
  CHECK(run.wait() == 0);
  CAPTURE(run.text());
  CHECK(folder.read("out/model.safetensors") == expected);
}

TEST_CASE("plan --largest names models for a machine that the command line describes") {
  const RunFolder folder;
  const std::string plan = std::string(DSTRAIN_PROGRAM) + " plan --config c.json --largest ";
  RunningProgram found = folder.start(
      plan +
      "--num_gpus 2 --device_memory 30MB --host_memory 200MB --disk 1GB --json > models.json");
  REQUIRE(found.wait() == 0);
  const json models = json::parse(folder.read("models.json"));
  REQUIRE(models.size() == 6);
  for (const json& model : models) {
    CHECK(model["device"] <= 30000000);
    CHECK(2 * model["host"].get<int64_t>() <= 200000000);
    CHECK(2 * model["disk"].get<int64_t>() <= 1000000000);
  }
  CHECK(models[3]["parameters"] > models[0]["parameters"]);
  for (const auto& [options, why] :
       {std::pair{"--num_gpus 2", "--largest needs --device_memory"},
        {"--device_memory 1GB --timeline", "one of --largest and --timeline"}}) {
    RunningProgram refused = folder.start(plan + options);
    CHECK(refused.wait() == 1);
    CHECK(refused.wrote(why));
  }
}

TEST_CASE("a drive that cannot be used is one error, and nothing of the user's is touched") {
  const RunFolder folder;
  folder.write("file", "mine");
  RunningProgram run = folder.train(
      "--set zero_optimization.offload_optimizer.device=nvme --num_gpus 2 "
      "--set zero_optimization.offload_optimizer.nvme_path=file");
  CHECK(run.wait() != 0);
  CAPTURE(run.text());
  CHECK(run.wrote("cannot make the directory file"));
  CHECK(folder.read("file") == "mine");
  CHECK(folder.nothing_left());
}

TEST_CASE("plan counts the threads that OMP_NUM_THREADS gives to a rank, as the run does") {
  const RunFolder folder;
  std::vector<int64_t> planned;
  for (const std::string threads : {"1", "3"}) {
    const Environment variables = {{"OMP_NUM_THREADS", threads}};
    RunningProgram plan = folder.start(
        DSTRAIN_PROGRAM " plan --config c.json --num_gpus 1 --json > plan.json", variables);
    REQUIRE(plan.wait() == 0);
    planned.push_back(json::parse(folder.read("plan.json"))["memory"]["total"]);
    RunningProgram run = folder.train("--steps 1 --num_gpus 1 --overwrite ", variables);
    REQUIRE(run.wait() == 0);
    const std::string steps = folder.read("out/metrics.jsonl");
    CHECK(json::parse(steps.substr(0, steps.find('\n')))["peak_bytes"] == planned.back());
  }
  CHECK(planned[0] < planned[1]);
}

}  // namespace
}  // namespace dstrain
