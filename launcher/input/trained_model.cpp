#include "launcher/input/trained_model.h"

#include <filesystem>
#include <system_error>

#include "launcher/input/run_input.h"
#include "runtime/config/model/family.h"
#include "runtime/config/resolved_config.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestFile = int64_t{64} << 20;

// Returns what --run names. Throws UserError if there is no model.
ModelPlace model_place(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code none;
  ModelPlace place{directory, ""};
  const bool checkpoint = fs::exists(fs::path(directory) / kManifestName, none);
  if (checkpoint)  // RUN/checkpoints/step_N
    place = {(fs::path(directory) / ".." / "..").lexically_normal().string(), directory};
  if (!fs::exists(place.run_dir + "/resolved_config.json", none))
    fail_user(
        "--run {}: there is no {}/resolved_config.json, which every run writes: give the output "
        "directory of a run "
        "(its --output, or runs/<config's name>), or a checkpoint in it",
        directory, place.run_dir);
  for (const std::string_view name : {kWeightsName, kIndexName})
    if (checkpoint || fs::exists(fs::path(directory) / name, none)) return place;
  fail_user(
      "--run {0}: there is no {0}/model.safetensors, which a run writes at its end: give one of "
      "its checkpoints ({0}/checkpoints/step_N)",
      directory);
}

// Returns the vocabulary of a run. A run of one of transformers' models on token ids has none of its own: its vocab.json is
// the tokenizer's.
Vocabulary vocabulary_in(const std::string& run_dir, const ModelConfig& model) {
  const std::string file = run_dir + "/vocab.json";
  std::error_code none;
  if (model.family().hugging_face) {
    std::string text;
    if (std::filesystem::exists(file, none))
      text = read_input_file(file, "the vocabulary", kLargestFile);
    if (!is_vocabulary(text))
      return {.format = DataFormat::tokens, .characters = {}, .size = model.vocabulary()};
  }
  return parse_vocabulary(read_input_file(file, "the vocabulary", kLargestFile), file);
}

}  // namespace

TrainedModel read_trained_model(const std::string& run, const std::string& device,
                                const ModelRegistry& models) {
  TrainedModel model;
  model.place = model_place(run);
  const std::string job_file = model.place.run_dir + "/resolved_config.json";
  model.job = job_from_resolved(
      read_input_file(job_file, "the resolved configuration", kLargestFile), models, job_file);
  const ModelFamily& family = model.job.model.family();
  if (const std::string why = family.why_no_text(); !why.empty())
    fail_user("{} holds a {}, which {}", run, family.title, why);
  model.job.device = device;  // not the device of the training run
  settle_device(model.job);
  model.vocabulary = vocabulary_in(model.place.run_dir, model.job.model);
  if (family.hugging_face && model.vocabulary.format == DataFormat::tokens &&
      has_tokenizer(model.place.run_dir))
    model.tokenizer = model.place.run_dir;
  return model;
}

}  // namespace dstrain
