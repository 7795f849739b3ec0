#include "launcher/input/defaults.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

LoadedConfig loaded_from(const TempDir& folder, const std::string& text,
                         std::vector<std::string> sets = {}) {
  ConfigRequest request;
  request.models = &model_registry();
  request.path = folder.write("c.json", text);
  request.sets = std::move(sets);
  return load_config(request);
}

TEST_CASE("a file that names no sizes of a model is said to train the default one") {
  const TempDir folder;
  LoadedConfig loaded = loaded_from(folder, R"({"train_batch_size": 8})");
  const std::string line =
      "c.json names no sizes of a model: the default, a GPT-lite of 12 layers of 768 channels on "
      "2048 tokens";
  const std::string other = " (dstrain.model or --model FILE.json names another)";
  CHECK(model_line("c.json", loaded) == line + other);
  loaded.job.model.set("vocab_size", 65);
  CHECK(model_line("c.json", loaded) == line + ", 86.7 million parameters" + other);
  CHECK(default_lines("c.json", loaded) ==
        std::vector<std::string>{line + ", 86.7 million parameters" + other,
                                 update_line("c.json", loaded)});
  const std::string size =
      GENERATE("n_layer=12", "n_embd=768", "n_head=12", "block_size=16", "type=benchmark");
  std::vector<std::string> sets{"dstrain.model." + size};
  if (size == "type=benchmark")
    for (const char* key : {"n_layer", "in_size", "hidden_size", "out_size"})
      sets.push_back(std::string("dstrain.model.") + key + "=4");
  CHECK(model_line("c.json", loaded_from(folder, R"({"train_batch_size": 8})", sets)).empty());
}

TEST_CASE("the optimizer and the clipping that a file does not name are said") {
  const TempDir folder;
  const auto line = [&](const std::string& members) {
    return update_line("c.json", loaded_from(folder, R"({"train_batch_size": 8)" + members + "}"));
  };
  const std::string optimizer = R"(, "optimizer": {"type": "Lion"})",
                    clipping = R"(, "gradient_clipping": 0.5)";
  CHECK(line("") ==
        "c.json names no optimizer and no gradient_clipping: AdamW with lr 0.001, gradients are "
        "clipped to a norm of 1");
  CHECK(line(clipping) == "c.json names no optimizer: AdamW with lr 0.001");
  CHECK(line(clipping + R"(, "scheduler": {"type": "WarmupLR"})") ==
        "c.json names no optimizer: AdamW");
  CHECK(line(optimizer) ==
        "c.json names no gradient_clipping: gradients are clipped to a norm of 1");
  CHECK(line(optimizer + clipping).empty());
}

TEST_CASE("what a run lacks to read its data is the name of a file, or the file") {
  const TempDir folder;
  Job job = job_of();
  CHECK(missing_data(job) == "--data names a file");
  job.data.paths = {folder / "in.txt"};
  CHECK(missing_data(job) == folder / "in.txt is there");
  folder.write("in.txt", "text");
  CHECK(missing_data(job).empty());
  job = job_of(BenchmarkModel{});
  CHECK(missing_data(job).empty());
}

TEST_CASE("a plan assumes a vocabulary where the data do not say one") {
  const TempDir folder;
  Job job = job_of(GptLite{.block_size = 4});
  const auto settle = [&job] {
    job.model.set("vocab_size", 0);
    return settle_planned_vocabulary(job);
  };
  REQUIRE(settle());
  CHECK(job.model.integer("vocab_size") == 256);
  CHECK(settle()->line() ==
        "assumed: a vocabulary of 256, as no data file is named (--set dstrain.model.vocab_size=N "
        "gives the size)");
  job.data.paths = {folder / "in.txt"};
  CHECK(settle()->why == folder / "in.txt is not there");
  CHECK(job.model.integer("vocab_size") == 256);
  job.data.format = DataFormat::tokens;
  CHECK(settle()->size == 50257);
  job.data.format = DataFormat::automatic;
  job.data.paths = {folder / "in.bin"};
  CHECK(settle()->size == 50257);
  job.data.paths = {folder.write("there.bin", std::string(64, '\0'))};
  CHECK(settle()->why == folder / "there.bin holds token ids");
  job.data.paths = {folder.write("in.txt", "abcabcabcabcabcabc")};
  CHECK_FALSE(settle());
  CHECK(job.model.integer("vocab_size") == 3);
  job.data.paths = {folder.path()};  // a directory is there, and no data
  CHECK_THROWS_AS(settle(), UserError);
  job.model.set("vocab_size", 7);
  CHECK_FALSE(settle_planned_vocabulary(job));
}

}  // namespace
}  // namespace dstrain
