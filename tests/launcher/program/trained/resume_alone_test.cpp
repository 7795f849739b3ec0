// --resume RUN without a configuration: the run's own settings are enough to go on with it.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

// Returns what the program said, which must end with this status.
std::string said(const RunFolder& folder, const std::string& words, int status = 0,
                 const Environment& added = {}) {
  return folder.output_of(std::string(DSTRAIN_PROGRAM) + " " + words + " 2>&1", status, added);
}

json values_of(const RunFolder& folder, const std::string& run) {
  return json::parse(folder.read(run + "/resolved_config.json"))["values"];
}

// What a run was given, beside what c.json says.
const std::string kGiven =
    "--config c.json --set optimizer.type=SGD --set optimizer.params.lr=0.1 "
    "--set zero_optimization.stage=2 --set scheduler.type=WarmupDecayLR "
    "--set scheduler.params.total_num_steps=auto --set dstrain.save_last=true "
    "--set dstrain.model.tied_head=true --seed 7 ";

TEST_CASE(
    "a run goes on with its own settings, on as many ranks, to the weights of one that went "
    "through") {
  const RunFolder folder;
  const auto ranks = GENERATE("1", "2");
  const std::string of_ranks = std::string("--num_gpus ") + ranks + " ";
  said(folder, kGiven + of_ranks + "--output whole --steps 6");
  said(folder, kGiven + of_ranks + "--output half --steps 6 --save_interval 3");
  fs::remove_all(folder.path("half/checkpoints/step_6"));  // as of a run that was killed
  fs::remove(folder.path("half/model.safetensors"));
  fs::rename(folder.path("c.json"), folder.path("moved.json"));
  const std::string text = said(folder, "--resume half");
  CHECK_THAT(text, Contains("steps 4 to 6, resumed after step 3"));
  CHECK_THAT(text, !Contains("--resume: "));
  CHECK_THAT(text, Contains("results in half\n"));
  CHECK(folder.read("half/model.safetensors") == folder.read("whole/model.safetensors"));
  // What was not given follows again, and so does what follows from an option.
  const json values = values_of(folder, "half");
  CHECK(values["dstrain.seed"]["value"] == 7);
  CHECK(values["dstrain.save_interval"]["value"] == 3);
  CHECK(values["run.ranks"]["value"] == std::stoi(ranks));
  CHECK(values["gradient_clipping"]["origin"] == "default");
  CHECK_THAT(values["train_batch_size"]["origin"].get<std::string>(),
             Contains("half/resolved_config.json:"));
  said(folder, "--resume half/checkpoints/step_6 --steps 8 --output more");
  CHECK(values_of(folder, "more")["scheduler.params.total_num_steps"]["value"] == 8);
  CHECK_THAT(said(folder, "--resume more --steps 9"), Contains("step 9, resumed after step 8"));
}

TEST_CASE("a run goes on alone on other ranks, and options overrule its settings") {
  const RunFolder folder;
  said(folder, kGiven + "--output run --num_gpus 2 --steps 3");
  const std::string text =
      said(folder, "--resume run --num_gpus 4 --steps 5 --set optimizer.params.lr=0.05");
  CHECK_THAT(text, Contains("steps 4 to 5, resumed after step 3"));
  CHECK_THAT(text, Contains("optimizer.params.lr was 0.1 and is 0.05"));
  const json values = values_of(folder, "run");
  CHECK(values["run.ranks"]["value"] == 4);
  CHECK(values["optimizer.params.lr"]["value"] == 0.05);
  CHECK(values["zero_optimization.stage"]["value"] == 2);
  const std::string by_mpirun =
      folder.output_of(std::string("mpirun --oversubscribe --bind-to none -np 2 ") +
                           DSTRAIN_PROGRAM + " --resume run --steps 7 2>&1",
                       0,
                       {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                        {"OMP_NUM_THREADS", "1"}});
  CHECK_THAT(by_mpirun, Contains("steps 6 to 7, resumed after step 5"));
}

TEST_CASE("a run of a folder's model goes on, and says where the model is missing") {
  const RunFolder folder;
  folder.write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2,
                                "n_positions": 8, "vocab_size": 300})");
  std::string without_steps = folder.read("c.json");
  without_steps.erase(without_steps.find("\"steps\": 4,"), 11);
  folder.write("e.json", without_steps);
  const std::string bytes = "--set dstrain.data.format=byte --config e.json ";
  said(folder, bytes + "--model gpt2.json --steps 0 --output base");
  json described = json::parse(folder.read("base/config.json"));
  described["strange"] = 1;
  folder.write("base/config.json", described.dump());
  said(folder, bytes +
                   "--model base --ignore dstrain.model.strange --save_interval 2 --epochs 0.1 "
                   "--set dstrain.model.n_head=1 --output run");
  const json steps = values_of(folder, "run")["dstrain.steps"]["value"];
  CHECK_THAT(said(folder, "--resume run"),
             Contains("; step " + steps.dump() + ", resumed after step "));
  CHECK(json::parse(folder.read("run/config.json"))["n_head"] == 1);
  CHECK(values_of(folder, "run")["run.model_directory"]["value"] == "base");
  fs::rename(folder.path("base"), folder.path("away"));
  CHECK_THAT(said(folder, "--resume run", 1),
             Contains("the model of the run was in base, and there is no base/config.json now: "
                      "--model names where it is"));
  said(folder, "--resume run --model away --set dstrain.model.n_head=1");
}

TEST_CASE("a resolved configuration is a configuration, and its run's folder names the new one") {
  const RunFolder folder;
  said(folder, kGiven + "--output first");
  const std::string text = said(folder, "--config first/resolved_config.json");
  CHECK_THAT(text, Contains("results in runs/first\n"));
  CHECK(folder.read("runs/first/model.safetensors") == folder.read("first/model.safetensors"));
  CHECK_THAT(said(folder, "--config runs/first/resolved_config.json --steps 2"),
             Contains("results in runs/first-2\n"));
  CHECK_FALSE(fs::exists(folder.path("runs/resolved_config")));
  CHECK_THAT(said(folder, "check --config first/resolved_config.json"), !Contains("error"));
  said(folder, "plan --config first/resolved_config.json --num_gpus 2");
}

TEST_CASE("--resume says what it takes") {
  const RunFolder folder;
  for (const std::string value : {"auto", "true", "latest"})
    CHECK_THAT(only_error(said(folder, "--resume " + value, 1)),
               Contains("--resume " + value +
                        ": expected the folder of the run to go on with (its --output, or "
                        "runs/NAME)"));
  CHECK_THAT(only_error(said(folder, "--resume", 1)),
             Contains("--resume: the value is missing, expected --resume DIR"));
  CHECK_THAT(only_error(said(folder, "--resume nowhere", 1)),
             Contains("there is no nowhere/resolved_config.json, which every run writes"));
  said(folder, "--config c.json --steps 1 --output none");
  CHECK_THAT(only_error(said(folder, "--resume none", 1)),
             Contains("--resume: there is no checkpoint in none"));
}

}  // namespace
}  // namespace dstrain
