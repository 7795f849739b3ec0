#include "runtime/engine/files/model_directory.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "runtime/config/family/family.h"
#include "runtime/config/read/model_source.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/chat/template_directory.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"
#include "runtime/data/vocabulary.h"
#include "runtime/engine/files/end_weights.h"
#include "runtime/storage/weights/fp8_blocks.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestCopy = int64_t{256} << 20;

constexpr std::array<std::string_view, 12> kCopied{"generation_config.json",
                                                   kTokenizerFile,
                                                   "tokenizer_config.json",
                                                   "special_tokens_map.json",
                                                   "added_tokens.json",
                                                   "vocab.json",
                                                   "vocab.txt",
                                                   "merges.txt",
                                                   "tokenizer.model",
                                                   "spiece.model",
                                                   kTemplateFile,
                                                   "chat_template.json"};

// Returns whether a folder has a vocab.json that is the vocabulary of a run on characters or bytes, and no tokenizer's: of
// an earlier run, or of the one that trained the model. A run of them writes its own.
bool has_vocabulary_of_run(const std::string& folder) {
  const std::string path = folder + "/vocab.json";
  std::error_code none;
  return fs::is_regular_file(path, none) &&
         is_vocabulary(read_input_file(path, "the vocabulary", kLargestCopy));
}

// Returns a file of the model; nothing if the folder has none of that name.
std::optional<std::string> copied_file(const std::string& folder, std::string_view name) {
  std::error_code none;
  const std::string path = fmt::format("{}/{}", folder, name);
  if (folder.empty() || !fs::exists(path, none)) return std::nullopt;
  if (name == "vocab.json" && has_vocabulary_of_run(folder)) return std::nullopt;
  return read_input_file(path, "a file of the model", kLargestCopy);
}

// Returns the dtypes that the weights of a job keep of its model's.
std::map<std::string, DType> kept_dtypes(const Job& job) {
  if (job.save.dtype || job.model_directory.empty()) return {};
  return dtypes_in_directory(job.model_directory, job.model);
}

}  // namespace

std::map<std::string, DType> dtypes_in_directory(const std::string& directory,
                                                 const ModelConfig& model) {
  std::map<std::string, DType> dtypes;
  std::error_code none;
  const fs::path folder = directory;
  if (!fs::exists(folder / kWeightsName, none) && !fs::exists(folder / kIndexName, none))
    return dtypes;
  const WeightFiles files(directory_weights(directory, "--model " + directory),
                          foreign_names_of(model));
  files.for_each([&dtypes](const SafetensorsTensor& tensor, const std::string& name) {
    if (is_fp8(tensor)) return;  // it is saved as other weights are
    const std::string_view type = tensor.type.name;
    const DType dtype = type == "BF16" ? DType::bf16 : type == "F16" ? DType::f16 : DType::f32;
    dtypes[name] = dtypes[tensor.name] = dtype;
  });
  return dtypes;
}

DType saved_dtype(const std::string& tensor, const std::map<std::string, DType>& kept,
                  const SaveConfig& save) {
  const auto known = kept.find(tensor);
  return known == kept.end() ? save.dtype.value_or(save.usual) : known->second;
}

void copy_model_files(const std::string& from, const std::string& to, OtherFiles others) {
  std::error_code none;
  for (const std::string_view name : kCopied) {
    const std::string path = fmt::format("{}/{}", to, name);
    if (const std::optional<std::string> bytes = copied_file(from, name))
      write_file(path, *bytes);
    else if (others == OtherFiles::removed && !fs::is_directory(path, none) &&
             !(name == "vocab.json" && has_vocabulary_of_run(to)))
      fs::remove(path, none);
  }
}

void check_model_files(const std::string& folder) {
  for (const std::string_view name : kCopied) copied_file(folder, name);
}

std::map<std::string, DType> begin_model_directory(const Job& job, const std::string& config_json,
                                                   OtherFiles others) {
  std::map<std::string, DType> dtypes = kept_dtypes(job);
  copy_model_files(job.model_directory, job.output, others);
  if (!job.data.added_tokens.empty())
    write_file(fmt::format("{}/{}", job.output, kTokenizerFile),
               tokenizer_text(job.model_directory, job.data.added_tokens));
  if (!job.data.chat_template.empty())
    write_file(fmt::format("{}/{}", job.output, kTemplateFile),
               named_template(job.data.chat_template, kTemplateKey));
  std::error_code none;
  if (has_vocabulary_of_run(job.output)) fs::remove(job.output + "/vocab.json", none);
  const std::string config = fmt::format("{}/{}", job.output, kConfigJson);
  if (EndWeights::adapters_alone(job) && !job.model_directory.empty())
    fs::remove(config, none);
  else
    write_file(config, config_json);
  return dtypes;
}

}  // namespace dstrain
