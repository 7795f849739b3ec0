#include "launcher/init/plan_init.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "launcher/cli/init_arguments.h"
#include "models/registry.h"
#include "runtime/config/load.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGiB = int64_t{1} << 30;
const InitMachine kCpus{.memory = 16 * kGiB};

// A folder with a text, and configurations that are made of it.
struct InitFolder {
  InitFolder() {
    std::string name = (fs::temp_directory_path() / "dstrain_init_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
    std::ofstream out(path / "input.txt");
    for (int i = 0; i < 2000; ++i) out << "In the beginning God created the heaven " << i << "\n";
  }
  ~InitFolder() { fs::remove_all(path); }

  NewConfig make(std::vector<std::string> words, const InitMachine& machine = kCpus) const {
    words.insert(words.end(), {"--data", (path / "input.txt").string()});
    return plan_init(std::get<InitArguments>(parse_init(words, model_registry())), machine);
  }

  // Returns what `dstrain check` says of a configuration for so many ranks.
  LoadedConfig check(const NewConfig& made, int64_t ranks) const {
    std::ofstream(path / "c.json") << made.text;
    ConfigRequest request;
    request.models = &model_registry();
    request.path = (path / "c.json").string();
    request.ranks = ranks;
    request.need_data = true;
    return check_config(request);
  }

  fs::path path;
};

TEST_CASE("what init writes is honoured, every key of it") {
  const InitFolder folder;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--size", "2M", "--num_gpus", "2"},
           {"--size", "2M", "--num_gpus", "2", "--precision", "bf16", "--zero_stage", "3"},
           {"--size", "10M", "--optimizer", "SGD", "--precision", "fp16", "--steps", "3"},
           {"--model", "llama", "--size", "100M", "--num_gpus", "8", "--optimizer", "Muon"},
           {"--model", "gpt2", "--size", "7B", "--num_gpus", "2", "--device_memory", "24GB",
            "--host_memory", "1TB"}}) {
    const int64_t ranks =
        std::get<InitArguments>(parse_init(words, model_registry())).ranks.value_or(1);
    const NewConfig made = folder.make(words);
    CAPTURE(made.text);
    const LoadedConfig checked = folder.check(made, ranks);
    CHECK_FALSE(checked.verdicts.empty());
    for (const Verdict& verdict : checked.verdicts) {
      CAPTURE(verdict.key, verdict.message);
      CHECK(verdict.state == State::honoured);
    }
  }
}

TEST_CASE("the ZeRO stage is the lowest that fits, and the micro-batch the largest") {
  const InitFolder folder;
  const auto job_with = [&folder](const char* memory) {
    const NewConfig made =
        folder.make({"--model", "gpt2", "--size", "350M", "--num_gpus", "8", "--precision", "bf16",
                     "--device_memory", memory, "--host_memory", "1TB"});
    return folder.check(made, 8).job;
  };
  const Job large = job_with("80GB"), medium = job_with("6GB"), small = job_with("2GB");
  CHECK(large.zero_stage == 0);
  CHECK(large.batch.micro_batch == 8);
  CHECK(medium.zero_stage > 0);
  CHECK(small.zero_stage >= medium.zero_stage);
  CHECK(small.batch.micro_batch <= medium.batch.micro_batch);
  CHECK_THROWS_WITH(job_with("20MB"), Catch::Contains("does not fit"));
}

TEST_CASE("a size gives layers, width and heads, and an MLP that goes with them") {
  const InitFolder folder;
  const auto parameters = [&folder](const char* model, const char* size) {
    const NewConfig made = folder.make(
        {"--model", model, "--size", size, "--device_memory", "1TB", "--host_memory", "1TB"});
    Job job = folder.check(made, 1).job;
    if (job.model.vocabulary() == 0) job.model.set_vocabulary(50);
    return job.model.measures().parameters;
  };
  CHECK(parameters("gptlite", "100M") == Approx(100e6).epsilon(0.3));
  CHECK(parameters("gpt2", "124M") == Approx(124e6).epsilon(0.1));
  CHECK(parameters("llama", "1.3B") == Approx(1.3e9).epsilon(0.3));
  CHECK_THROWS_WITH(parameters("mixtral", "1B"), Catch::Contains("do not follow"));
}

TEST_CASE("values of --set stand in the file, in the place of ours") {
  const InitFolder folder;
  const NewConfig made = folder.make({"--size", "2M", "--set", "dstrain.steps=7", "--set",
                                      "dstrain.seed=5", "--set", "dstrain.model.dropout=0"});
  const LoadedConfig checked = folder.check(made, 1);
  CHECK(checked.job.steps == 7);
  CHECK(made.text.find("\"dropout\": 0") != std::string::npos);
}

TEST_CASE("the command that trains has hosts and ranks") {
  const InitFolder folder;
  CHECK(command_text(folder.make({"--size", "2M"}).train) == "dstrain --config ds_config.json");
  CHECK(command_text(folder
                         .make({"--size", "2M", "--num_nodes", "2", "--num_gpus", "4", "--output",
                                "a b.json"})
                         .train) == "dstrain --config 'a b.json' --hostfile hosts --num_gpus 4");
  const InitMachine gpus{.gpus = 4, .gpu_memory = 80 * kGiB, .memory = 16 * kGiB};
  CHECK(command_text(folder.make({"--size", "2M"}, gpus).train) ==
        "dstrain --config ds_config.json --num_gpus 4");
  CHECK_THROWS_WITH(folder.make({"--batch", "3", "--num_gpus", "2"}),
                    "--batch 3: expected a multiple of the 2 ranks that share it");
}

}  // namespace
}  // namespace dstrain
