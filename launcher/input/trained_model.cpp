#include "launcher/input/trained_model.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "launcher/input/memory_check.h"
#include "launcher/input/name_patterns.h"
#include "launcher/input/run_input.h"
#include "runtime/config/family/family.h"
#include "runtime/config/load.h"
#include "runtime/config/read/model_source.h"
#include "runtime/config/read/run_folder.h"
#include "runtime/config/report/resolved_config.h"
#include "runtime/config/solve/solve.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/log/log.h"
#include "runtime/data/chat/template_directory.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestFile = int64_t{64} << 20;

// Returns the checkpoint that the run in a directory would go on from; nothing if there is none.
std::optional<CheckpointInfo> newest_checkpoint(const std::string& directory) {
  try {
    return find_checkpoint(directory);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Returns where the weights are that a run has left. Throws UserError if there are none.
WeightsSource model_place(const std::string& directory, std::string_view option) {
  namespace fs = std::filesystem;
  std::error_code none;
  WeightsSource place{.run_dir = directory, .option = option};
  const bool checkpoint = fs::exists(fs::path(directory) / kManifestName, none);
  if (checkpoint) {  // RUN/checkpoints/step_N
    place.run_dir = run_folder_of(directory);
    place.checkpoint = directory;
  }
  if (!fs::exists(place.run_dir + "/resolved_config.json", none))
    fail_user(
        "{} {}: there is no {}/resolved_config.json, which every run writes: give the output "
        "directory of a run "
        "(its --output, or runs/<config's name>), or a checkpoint in it",
        option, directory, place.run_dir);
  for (const std::string_view name : {kWeightsName, kIndexName, kAdapterWeights})
    if (checkpoint || fs::exists(fs::path(directory) / name, none)) return place;
  const std::optional<CheckpointInfo> newest = newest_checkpoint(directory);
  if (!newest)
    fail_user(
        "{0} {1}: there is neither a {1}/model.safetensors, which a run writes at its end, nor a "
        "checkpoint ({1}/checkpoints/step_N)",
        option, directory);
  log::warn(
      "{} has no weights of the run's end: those of its newest checkpoint, of step {}, are taken",
      directory, newest->label.step);
  place.checkpoint = newest->dir;
  return place;
}

// Returns the model whose weights are at a place: with the adapters of the run, unless the weights have them already.
ModelConfig held_model(const Job& job, const WeightsSource& place) {
  ModelConfig model = job.model;
  FineTuning tuning = model.fine_tuning();
  if (place.checkpoint.empty() && job.adapters.merge) tuning.lora.reset();
  model.set_fine_tuning(std::move(tuning));
  return model;
}

// Returns the directory of the tokenizer that a run's token ids are of; empty: there is none. A run that has left adapters
// alone has no config.json, which may say where a text ends: the folder of its model has one, but not the tokens that the run
// adds.
std::string tokenizer_of(const Job& job, const std::string& run_dir, const Vocabulary& vocabulary) {
  if (!job.model.family().hugging_face || vocabulary.format != DataFormat::tokens) return {};
  std::error_code none;
  const bool whole = !job.data.added_tokens.empty() ||
                     std::filesystem::exists(std::filesystem::path(run_dir) / kConfigJson, none);
  for (const std::string& directory : {whole ? std::string() : job.model_directory, run_dir})
    if (!directory.empty() && has_tokenizer(directory)) return directory;
  return {};
}

// Sets the device, which is not that of the training run. Throws UserError if the model predicts no text.
void settle_model(TrainedModel& model, DeviceChoice device, const std::string& from) {
  const ModelFamily& family = model.job.model.family();
  if (const std::string why = family.why_no_text(); !why.empty())
    fail_user("{} holds a {}, which {}", from, family.title, why);
  if (model.job.model.gives_score())
    fail_user("{} holds a {} that gives answers a score, and has no text to generate or to measure",
              from, family.title);
  model.job.device = device;
  settle_device(model.job);
}

Vocabulary token_ids_of(const ModelConfig& model) {
  return {.format = DataFormat::tokens, .characters = {}, .size = model.vocabulary()};
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
    if (!is_vocabulary(text)) return token_ids_of(model);
  }
  return parse_vocabulary(read_input_file(file, "the vocabulary", kLargestFile), file);
}

}  // namespace

WrittenRun read_run(const std::string& run, std::string_view option, const ModelRegistry& models) {
  WrittenRun written;
  written.place = model_place(run, option);
  const std::string job_file = written.place.run_dir + "/resolved_config.json";
  written.job = job_from_resolved(
      read_input_file(job_file, "the resolved configuration", kLargestFile), models, job_file);
  written.lora = written.job.model.fine_tuning().lora;
  written.job.model = held_model(written.job, written.place);
  return written;
}

TrainedModel read_trained_model(const std::string& run, DeviceChoice device,
                                const ModelRegistry& models) {
  WrittenRun written = read_run(run, "--run", models);
  TrainedModel model;
  model.job = std::move(written.job);
  model.place = std::move(written.place);
  settle_model(model, device, run);
  model.vocabulary = vocabulary_in(model.place.run_dir, model.job.model);
  model.tokenizer = tokenizer_of(model.job, model.place.run_dir, model.vocabulary);
  return model;
}

std::string tokenizer_of(const WrittenRun& run) {
  return tokenizer_of(run.job, run.place.run_dir, vocabulary_in(run.place.run_dir, run.job.model));
}

TrainedModel read_model_directory(const std::string& directory, DeviceChoice device,
                                  const std::vector<std::string>& ignored,
                                  const ModelRegistry& models) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (!fs::is_directory(directory, none))
    fail_user("--model {}: expected the folder of a model with config.json and weights",
              printable(directory));
  const fs::path folder = directory;
  if (!fs::exists(folder / kConfigJson, none) && fs::exists(folder / "resolved_config.json", none))
    fail_user("--model {0}: the folder is that of a run without a config.json: --run {0} takes it",
              printable(directory));
  TrainedModel model;
  model.job = job_of_model_directory(directory, ignored, models);
  model.place = {.run_dir = directory, .option = "--model"};
  directory_weights(directory, "--model " + directory);
  settle_model(model, device, directory);
  model.vocabulary = token_ids_of(model.job.model);
  if (has_tokenizer(directory)) model.tokenizer = directory;
  return model;
}

std::string template_of_run(const TrainedModel& model) {
  const std::string& given = model.job.data.chat_template;
  const std::string written = fmt::format("{}/{}", model.place.run_dir, kTemplateFile);
  std::error_code none;
  return !given.empty() && std::filesystem::exists(written, none) ? written : given;
}

CheckDeviceBytes check_forward(const TrainedModel& model, const std::string& advice) {
  check_forward_weights(model.job, model.place, weights_of(model.job.model));
  if (is_gpu(model.job.device)) return {};
  // Planning a model that is far too large would take long.
  const ModelMeasures sizes = model.job.model.measures();
  const double values =
      (sizes.parameters - sizes.packed) * static_cast<double>(size_of(DType::f32));
  check_forward_memory(static_cast<int64_t>(std::min(values, 1e18)), true, available_memory(),
                       "use a smaller model, or a machine with more memory");
  return
      [advice](int64_t bytes) { check_forward_memory(bytes, false, available_memory(), advice); };
}

}  // namespace dstrain
