#include "launcher/input/compared_files.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/core/error.h"
#include "runtime/data/open_dataset.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

// A run on a folder with a file of every kind that a run reads.
struct EveryKind {
  EveryKind() {
    std::filesystem::create_directories(dir / "model");
    std::filesystem::create_directories(dir / "adapter");
    dir.write("c.json", "{}");
    dir.write("chats.jsonl", "{}");
    dir.write("text.txt", "some text some text some text");
    dir.write("own.jinja", "a");
    dir.write("val.txt", "text some text some text some");
    dir.write("model/config.json", "{}");
    dir.write("model/model.safetensors.index.json",
              R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
    dir.write("model/one.safetensors", "1");
    dir.write("model/two.safetensors", "2");
    dir.write("adapter/adapter_model.safetensors", "3");
  }
  // Returns the files of a run that begins, or with a checkpoint of one that continues.
  ComparedFiles files(const std::string& resume = "") const {
    RunInput input;
    Job& job = input.loaded.job;
    job.model = GptLite{.n_layer = 1, .n_embd = 4, .n_head = 1, .block_size = 2, .vocab_size = 7};
    job.data.paths = {dir / "text.txt"};
    job.data.val_path = dir / "val.txt";
    job.data.val_fraction = 0;
    job.data.chat_template = dir / "own.jinja";
    job.model_directory = dir / "model";
    job.resume = resume;
    if (resume.empty()) job.init_weights = dir / "model/model.safetensors.index.json";
    job.adapters.init = dir / "adapter";
    input.dataset = open_dataset(job);
    input.texts.files = {dir / "chats.jsonl"};
    return compared_files(input, dir / "c.json");
  }
  TempDir dir;
};

// The kinds of files that every start reads, and those that only the beginning reads.
const std::vector<std::string> kAlways = {"c.json",  "chats.jsonl",       "text.txt",
                                          "val.txt", "model/config.json", "own.jinja"},
                               kBeginning = {"model/model.safetensors.index.json",
                                             "model/one.safetensors", "model/two.safetensors",
                                             "adapter/adapter_model.safetensors"};

TEST_CASE("a start and a restart compare the same files, but for those of the first weights") {
  const EveryKind run;
  std::vector<std::string> start, restart, always, all;
  for (const ComparedFile& file : run.files()) start.push_back(file.path);
  for (const ComparedFile& file : run.files("out")) restart.push_back(file.path);
  for (const std::string& name : kAlways) always.push_back(run.dir / name);
  all = always;
  for (const std::string& name : kBeginning) all.push_back(run.dir / name);
  CHECK(start == all);
  CHECK(restart == always);
  CHECK_NOTHROW(require_unchanged(run.files(), run.files()));
  CHECK_NOTHROW(require_unchanged(run.files(), run.files("out")));
}

TEST_CASE("a restart with a changed file is refused, whatever kind of file a start reads") {
  const EveryKind run;
  const ComparedFiles begun = run.files();
  const auto refused = [&](const ComparedFiles& now, const std::string& name) {
    INFO(name);
    CHECK_THROWS_WITH(require_unchanged(begun, now),
                      Catch::StartsWith(run.dir / name +
                                        " has changed since the run began, and a restart would"));
  };
  const std::string name = GENERATE(from_range(kAlways));
  run.dir.write(
      name, name == "text.txt" || name == "val.txt" ? "text text some some text some text" : "{ }");
  refused(run.files("out"), name);
  refused(run.files(), name);
}

TEST_CASE("a restart from the beginning reads the first weights again, one from a checkpoint not") {
  const EveryKind run;
  const ComparedFiles begun = run.files();
  run.dir.write("model/two.safetensors", "22");
  run.dir.write("adapter/adapter_model.safetensors", "33");
  CHECK_NOTHROW(require_unchanged(begun, run.files("out")));
  CHECK_THROWS_WITH(
      require_unchanged(begun, run.files()),
      Catch::StartsWith(fmt::format("{}, {} have changed", run.dir / "model/two.safetensors",
                                    run.dir / "adapter/adapter_model.safetensors")));
}

TEST_CASE("a configuration that cannot be read again is refused") {
  const EveryKind run;
  CHECK_NOTHROW(require_rereadable(run.dir / "c.json", "every restart reads it again"));
  for (const std::string path : {"/dev/stdin", "/dev/fd/3", "/dev/null"})
    CHECK_THROWS_WITH(require_rereadable(path, "every restart reads it again"),
                      Catch::Contains(path + ": expected a regular file, because every restart"));
}

}  // namespace
}  // namespace dstrain
