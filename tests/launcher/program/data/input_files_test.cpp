// Paths of input that are no files: one error before anything starts, at whatever reader comes first.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

const std::string kProgram = DSTRAIN_PROGRAM;

TEST_CASE("a directory, a device or a pipe in place of a file is one error") {
  const auto [words, name] = GENERATE(table<std::string, std::string>({
      {" --config X", "the configuration"},
      {" --config c.json --model X", "the model file"},
      {" --config c.json --data X", "the data file"},
      {" --config c.json --init_weights X", "the weights file"},
      {" --config c.json --hostfile X", "the hostfile"},
  }));
  const RunFolder folder;
  REQUIRE(::mkfifo(folder.path("pipe.json").c_str(), 0600) == 0);
  fs::create_symlink("/dev/null", folder.root / "device.json");
  fs::create_directory(folder.root / "folder.json");
  for (const std::string type : {"pipe", "device", "directory"}) {
    const std::string path = type == "directory" ? "folder.json" : type + ".json";
    std::string given = words;
    given.replace(given.find('X'), 1, path);
    CAPTURE(given);
    RunningProgram run = folder.start(kProgram + given + " --num_gpus 2 " + folder.token());
    CHECK(run.wait() == 1);
    CAPTURE(run.text());
    CHECK(lines_of(run.text()) == 1);
    CHECK(only_error(run.text())
              .starts_with(
                  type == "directory" && name == "the weights file"
                      ? "--init_weights folder.json: the directory holds no model.safetensors; "
                  : type == "directory" && name == "the model file"
                      ? "--model folder.json: there is no config.json in the folder"
                      : name + " " + path + " is a " + type + ", expected a "));
    CHECK(folder.nothing_left());
  }
}

TEST_CASE("a part of a checkpoint or of a run that is a pipe is one error") {
  const RunFolder folder;
  CHECK(folder.train("--save_interval 2").wait() == 0);
  const std::string resume = " --config c.json --output=out --steps 6 --resume out";
  const std::string generate = " generate --run out --prompt the --tokens 1";
  const std::vector<std::pair<std::string, std::string>> parts = {
      {"metrics.jsonl", resume},
      {"checkpoints/step_4/rank_00000.safetensors", resume + "/checkpoints/step_4"},
      {"checkpoints/step_4/manifest.json", resume + "/checkpoints/step_4"},
      {"vocab.json", generate},
      {"model.safetensors", generate},
      {"resolved_config.json", generate},
  };
  for (const auto& [file, words] : parts) {
    CAPTURE(file, words);
    fs::rename(folder.root / "out" / file, folder.root / "kept");
    REQUIRE(::mkfifo(folder.path("out/" + file).c_str(), 0600) == 0);
    RunningProgram run = folder.start(kProgram + words);
    CHECK(run.wait() == 1);
    CAPTURE(run.text());
    CHECK(only_error(run.text()).find(file.substr(file.rfind('/') + 1)) != std::string::npos);
    fs::rename(folder.root / "kept", folder.root / "out" / file);
  }
}

TEST_CASE("a configuration comes from a pipe of the shell, too, on one rank and on two") {
  const auto ranks = GENERATE("1", "2");
  const RunFolder folder;
  RunningProgram run =
      folder.start("cat c.json | " + kProgram + " --config /dev/stdin --steps 1 --num_gpus " +
                   ranks + " " + folder.token());
  CHECK(run.wait() == 0);
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
}

TEST_CASE("initial weights are taken from a run's folder, on one rank and on two") {
  const RunFolder folder;
  REQUIRE(folder.start(kProgram + " --config c.json --steps 0 --seed 7 --output first").wait() ==
          0);
  for (const std::string ranks : {"1", "2"}) {
    RunningProgram run =
        folder.start(kProgram + " --config c.json --steps 0 --init_weights first --num_gpus " +
                     ranks + " --output second" + ranks);
    CHECK(run.wait() == 0);
    CAPTURE(run.text());
    CHECK(run.wrote("writes the weights in first/model.safetensors"));
    CHECK(folder.read("second" + ranks + "/model.safetensors") ==
          folder.read("first/model.safetensors"));
  }
}

TEST_CASE("DS_ENV_FILE without a file that can be read is one error") {
  const RunFolder folder;
  for (const std::string name : {"nowhere", "tmp"}) {
    RunningProgram run = folder.train("--num_gpus 2", {{"DS_ENV_FILE", folder.path(name)}});
    CHECK(run.wait() == 1);
    CAPTURE(run.text());
    CHECK(only_error(run.text()).find("that DS_ENV_FILE names, " + folder.path(name)) !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace dstrain
