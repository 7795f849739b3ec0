// The files of one of transformers' models beside its weights, and a head that the model does not read.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "runtime/core/error.h"
#include "runtime/data/vocabulary.h"
#include "runtime/engine/files/model_directory.h"
#include "runtime/engine/files/unread_head.h"
#include "runtime/storage/weights/weights_writer.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr int64_t kIds = 7, kWidth = 4;

ModelConfig small_gpt2(bool tied) {
  ModelConfig model(*model_registry().find("gpt2"));
  model.set("n_layer", int64_t{1});
  model.set("n_embd", kWidth);
  model.set("n_head", int64_t{1});
  model.set("n_positions", kIds);  // so that another table has the embedding's shape
  model.set("vocab_size", kIds);
  model.set("tie_word_embeddings", tied);
  return model;
}

struct FileTensorOf {
  std::string name;
  Shape shape;
  float first = 1;  // the value of its first element; all others are 0.5
  DType dtype = DType::f32;
};

std::string write_weights(const TempDir& folder, const std::vector<FileTensorOf>& tensors) {
  const std::string path = folder / "model.safetensors";
  StateRegister weights;
  for (const FileTensorOf& t : tensors)
    weights.push_back({.name = t.name, .slot = "master", .global_shape = t.shape});
  WeightsFormat format;
  format.dtype = [&tensors](const std::string& name) {
    return std::ranges::find(tensors, name, &FileTensorOf::name)->dtype;
  };
  WeightsWriter writer(path, weights, format);
  for (const FileTensorOf& t : tensors) {
    std::vector<float> values(static_cast<size_t>(t.shape.elements()), 0.5f);
    values.front() = t.first;
    writer.write(t.name, 0, {values.data(), {t.shape.elements()}, DType::f32});
  }
  writer.finish();
  return path;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST_CASE("a head that differs from the embedding is refused where it would not be read") {
  const TempDir folder;
  const ModelConfig tied = small_gpt2(true);
  const Shape shape{kIds, kWidth};
  const std::string head = "lm_head.weight";
  for (const std::string table : {"transformer.wte.weight", "wte.weight"}) {
    CAPTURE(table);
    const auto check = [&](const FileTensorOf& other) {
      check_unread_head(write_weights(folder, {{table, shape}, {"h.0.other", {3}}, other}), tied);
    };
    CHECK_NOTHROW(check({head, shape}));
    CHECK_NOTHROW(check({head, shape, 1, DType::bf16}));
    CHECK_THROWS_WITH(check({head, shape, 1.25f}),
                      Contains(folder / "model.safetensors") &&
                          Contains("have a head, lm_head.weight, that differs from the embedding, "
                                   "transformer.wte.weight") &&
                          Contains("set tie_word_embeddings to false in its config.json"));
    CHECK_THROWS_AS(check({head, {kIds, kWidth + 1}}), UserError);
    CHECK_NOTHROW(check({"another", shape, 1.25f}));
  }
  // A model whose head is a weight of its own reads it, and weights without the embedding are an error of their own.
  const FileTensorOf other{head, shape, 1.25f};
  CHECK_NOTHROW(check_unread_head(write_weights(folder, {{"transformer.wte.weight", shape}, other}),
                                  small_gpt2(false)));
  CHECK_NOTHROW(check_unread_head(write_weights(folder, {other}), tied));
}

TEST_CASE("copies of a model's files take the place of those of another model") {
  const TempDir model, output;
  const auto lay_out = [&] {
    for (const char* const name : {"tokenizer_config.json", "merges.txt", "vocab.json"})
      output.write(name, "{\"old\": 1}");
    output.write("metrics.jsonl", "mine");
  };
  model.write("tokenizer.json", "new");
  lay_out();
  copy_model_files(model.path(), output.path(), OtherFiles::stay);
  CHECK(names_in(output.path()) == std::set<std::string>{"merges.txt", "metrics.jsonl",
                                                         "tokenizer.json", "tokenizer_config.json",
                                                         "vocab.json"});
  copy_model_files(model.path(), output.path(), OtherFiles::removed);
  CHECK(names_in(output.path()) == std::set<std::string>{"metrics.jsonl", "tokenizer.json"});
  CHECK(bytes_of_file(output / "tokenizer.json") == "new");
  // A run's own vocabulary is no tokenizer's, neither there nor here.
  const std::string own =
      vocabulary_json({.format = DataFormat::bytes, .characters = {}, .size = 256});
  output.write("vocab.json", own);
  copy_model_files("", output.path(), OtherFiles::removed);
  CHECK(names_in(output.path()) == std::set<std::string>{"metrics.jsonl", "vocab.json"});
  lay_out();
  model.write("vocab.json", own);
  copy_model_files(model.path(), output.path(), OtherFiles::removed);
  CHECK(names_in(output.path()) == std::set<std::string>{"metrics.jsonl", "tokenizer.json"});
}

TEST_CASE("a model's file that cannot be copied is known before anything is written") {
  const TempDir model, output;
  model.write("tokenizer.json", "new");
  CHECK_NOTHROW(check_model_files(model.path()));
  fs::create_directory(model / "generation_config.json");
  CHECK_THROWS_WITH(check_model_files(model.path()),
                    Contains("generation_config.json is a directory, expected a file"));
  Job job = job_of(small_gpt2(true));
  job.model_directory = model.path();
  job.output = output.path();
  output.write("config.json", "old");
  CHECK_THROWS_AS(begin_model_directory(job, "new", OtherFiles::removed), UserError);
  CHECK(bytes_of_file(output / "config.json") == "old");
}

TEST_CASE("beside adapters alone there is no config.json where they name the model's folder") {
  const TempDir model, output;
  Job job = job_of(small_gpt2(true));
  job.output = output.path();
  const auto has_config = [&](bool lora, bool merge, const std::string& directory) {
    job.model.set_fine_tuning(
        {.groups = {}, .lora = lora ? std::optional<LoraConfig>(LoraConfig{}) : std::nullopt});
    job.adapters.merge = merge;
    job.model_directory = directory;
    output.write("config.json", "old");
    begin_model_directory(job, "new", OtherFiles::removed);
    const bool there = fs::exists(output / "config.json");
    if (there) CHECK(bytes_of_file(output / "config.json") == "new");
    return there;
  };
  CHECK_FALSE(has_config(true, false, model.path()));
  CHECK(has_config(true, true, model.path()));
  CHECK(has_config(true, false, ""));
  CHECK(has_config(false, false, model.path()));
}

}  // namespace
}  // namespace dstrain
