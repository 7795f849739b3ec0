#include "launcher/input/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "launcher/input/fit_to_memory.h"
#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/text.h"
#include "runtime/data/file/data_files.h"
#include "runtime/data/open_dataset.h"
#include "runtime/data/vocabulary.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
namespace {

constexpr int64_t kAssumedOfText = 256;      // as many as bytes
constexpr int64_t kAssumedOfTokens = 50257;  // of a common tokenizer

// Returns whether a setting is the key table's default.
bool by_default(const LoadedConfig& loaded, std::string_view key) {
  const auto setting = std::ranges::find(loaded.settings, key, &Setting::key);
  return setting != loaded.settings.end() && setting->origin == "default";
}

}  // namespace

std::string model_line(const std::string& path, const LoadedConfig& loaded) {
  const ModelConfig& model = loaded.job.model;
  const ModelFamily& family = model.family();
  if (family.is_fixed) return "";
  // A size without a default is no size by default, unless the data give it.
  const bool all = std::ranges::all_of(family.keys, [&](const ModelKey& key) {
    return key.spec.type != Type::integer || key.name() == family.vocabulary_key() ||
           by_default(loaded, key.spec.key);
  });
  if (!all) return "";
  std::string line =
      fmt::format("{} names no sizes of a model: the default, a {} of {} of {} channels", path,
                  family.title, counted(model.layers(), "layer"), model.width());
  if (family.reads_tokens()) line += fmt::format(" on {}", counted(model.seq_len(), "token"));
  if (!family.reads_tokens() || model.vocabulary() > 0)
    line += fmt::format(", {:.1f} million parameters", model.measures().parameters / 1e6);
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

std::string update_line(const std::string& path, const LoadedConfig& loaded) {
  const Job& job = loaded.job;
  const auto type = std::ranges::find(loaded.settings, "optimizer.type", &Setting::key);
  std::vector<std::string_view> keys;
  std::vector<std::string> values;
  if (type != loaded.settings.end() && type->origin.starts_with("derived:")) {
    keys.push_back("optimizer");
    std::string& value =
        values.emplace_back(optimizer_rule(job.optimizer.kind).name(job.optimizer));
    if (job.schedule.kind == ScheduleKind::constant)
      value += fmt::format(" with lr {}", number_text(job.optimizer.lr));
  }
  if (by_default(loaded, "gradient_clipping")) {
    keys.push_back("gradient_clipping");
    values.push_back(
        fmt::format("gradients are clipped to a norm of {}", number_text(job.gradient_clipping)));
  }
  if (keys.empty()) return "";
  return fmt::format("{} names no {}: {}", path, fmt::join(keys, " and no "),
                     fmt::join(values, ", "));
}

std::vector<std::string> default_lines(const std::string& path, const LoadedConfig& loaded) {
  std::vector<std::string> lines;
  const auto add = [&lines](std::string line) {
    if (!line.empty()) lines.push_back(std::move(line));
  };
  add(model_line(path, loaded));
  add(batch_line(path, loaded));
  std::ranges::for_each(settled_lines(path, loaded), add);
  add(update_line(path, loaded));
  return lines;
}

std::string missing_data(const Job& job) {
  if (!job.model.family().reads_files()) return "";
  if (job.data.paths.empty()) return "--data names a file";
  std::vector<std::string> all = job.data.paths;
  if (!job.data.val_path.empty()) all.push_back(job.data.val_path);
  const std::string missing = first_missing(all);
  return missing.empty() ? "" : printable(missing) + " is there";
}

std::string AssumedVocabulary::line() const {
  return fmt::format("assumed: a vocabulary of {}, as {} (--set {}=N gives the size)", size, why,
                     key);
}

std::optional<AssumedVocabulary> settle_planned_vocabulary(Job& job) {
  const ModelFamily& family = job.model.family();
  if (!family.reads_tokens() || job.model.vocabulary() != 0) return std::nullopt;
  const DataConfig& data = job.data;
  const std::string absent = first_missing(data.paths);
  const bool missing = data.paths.empty() || !absent.empty();
  if (missing && !data.vocab.empty()) {
    job.model.set_vocabulary(vocabulary_of_run(data.vocab).size);
    return std::nullopt;
  }
  const bool tokens = data.format == DataFormat::tokens ||
                      (data.format == DataFormat::automatic && !data.paths.empty() &&
                       data.paths.front().ends_with(".bin"));
  if (!missing && !tokens) {
    Job reading = job;
    reading.data.val_path = "";  // it has no characters of its own
    job.model.set_vocabulary(open_dataset(reading)->vocabulary().size);
    return std::nullopt;
  }
  const int64_t size = tokens ? kAssumedOfTokens : kAssumedOfText;
  job.model.set_vocabulary(size);
  const std::string why = data.paths.empty() ? "no data file is named"
                          : missing          ? printable(absent) + " is not there"
                                             : printable(data.paths.front()) + " holds token ids";
  return AssumedVocabulary{size, why, model_path(family.vocabulary_key())};
}

}  // namespace dstrain
