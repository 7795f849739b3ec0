#include "launcher/input/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "launcher/input/name_patterns.h"
#include "runtime/config/text.h"
#include "runtime/data/open_dataset.h"
#include "runtime/data/vocabulary.h"
#include "runtime/storage/state.h"

namespace dstrain {
namespace {

constexpr int64_t kAssumedOfText = 256;      // as many as bytes
constexpr int64_t kAssumedOfTokens = 50257;  // GPT-2's

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

// Returns whether a setting is the key table's default.
bool by_default(const LoadedConfig& loaded, std::string_view key) {
  const auto setting = std::ranges::find(loaded.settings, key, &Setting::key);
  return setting != loaded.settings.end() && setting->origin == "default";
}

}  // namespace

double weight_count(ModelConfig model) {
  const int64_t layers = model.n_layer;
  const auto count = [&model](int64_t n) {
    model.n_layer = n;
    double sum = 0;
    for (const StateEntry& w : weights_of(model))
      sum += static_cast<double>(w.global_shape.elements());
    return sum;
  };
  // All layers after the third are like it.
  if (layers <= 3) return count(layers);
  const double two = count(2);
  return two + static_cast<double>(layers - 2) * (count(3) - two);
}

std::string model_line(const std::string& path, const LoadedConfig& loaded) {
  constexpr std::array<std::string_view, 4> sizes{"dstrain.model.n_layer", "dstrain.model.n_embd",
                                                  "dstrain.model.n_head",
                                                  "dstrain.model.block_size"};
  const ModelConfig& model = loaded.job.model;
  if (model.kind != ModelKind::gptlite ||
      !std::ranges::all_of(sizes, [&](std::string_view key) { return by_default(loaded, key); }))
    return "";
  std::string line = fmt::format(
      "{} names no sizes of a model: the default, a GPT-lite of {} of {} channels on {}", path,
      counted(model.n_layer, "layer"), model.n_embd, counted(model.block_size, "token"));
  if (model.vocab_size > 0)
    line += fmt::format(", {:.1f} million parameters", weight_count(model) / 1e6);
  return line + " (dstrain.model or --model FILE.json names another)";
}

std::string batch_line(const std::string& path, const LoadedConfig& loaded) {
  if (!loaded.default_batch) return "";
  const auto setting =
      std::ranges::find(loaded.settings, "train_micro_batch_size_per_gpu", &Setting::key);
  const std::string& origin = setting->origin;  // "derived: ...", "auto: ..."
  return fmt::format("{} names no batch size: micro-batch {} ({}), accumulation {}", path,
                     loaded.job.batch.micro_batch, origin.substr(origin.find(' ') + 1),
                     loaded.job.batch.accumulation);
}

std::vector<std::string> default_lines(const std::string& path, const LoadedConfig& loaded) {
  std::vector<std::string> lines;
  for (std::string line : {model_line(path, loaded), batch_line(path, loaded)})
    if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string missing_data(const Job& job) {
  if (job.model.kind != ModelKind::gptlite) return "";
  if (job.data.path.empty()) return "--data names a file";
  return is_there(job.data.path) ? "" : printable(job.data.path) + " is there";
}

std::string AssumedVocabulary::line() const {
  return fmt::format(
      "assumed: a vocabulary of {}, as {} (--set dstrain.model.vocab_size=N gives the size)", size,
      why);
}

std::optional<AssumedVocabulary> settle_planned_vocabulary(Job& job) {
  if (job.model.kind != ModelKind::gptlite || job.model.vocab_size != 0) return std::nullopt;
  const DataConfig& data = job.data;
  const bool missing = data.path.empty() || !is_there(data.path);
  if (missing && !data.vocab.empty()) {
    job.model.vocab_size = vocabulary_of_run(data.vocab).size;
    return std::nullopt;
  }
  const bool tokens = data.format == DataFormat::tokens ||
                      (data.format == DataFormat::automatic && data.path.ends_with(".bin"));
  if (!missing && !tokens) {
    job.model.vocab_size = open_dataset(job)->vocabulary().size;
    return std::nullopt;
  }
  job.model.vocab_size = tokens ? kAssumedOfTokens : kAssumedOfText;
  const std::string why = data.path.empty() ? "no data file is named"
                          : missing         ? printable(data.path) + " is not there"
                                            : printable(data.path) + " holds token ids";
  return AssumedVocabulary{job.model.vocab_size, why};
}

}  // namespace dstrain
