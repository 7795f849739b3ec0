#include "runtime/engine/files/model_directory.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "runtime/config/model/family.h"
#include "runtime/config/read/model_source.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/vocabulary.h"
#include "runtime/storage/atomic_file.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestCopy = int64_t{256} << 20;

constexpr std::array kCopied{"generation_config.json",
                             "tokenizer.json",
                             "tokenizer_config.json",
                             "special_tokens_map.json",
                             "added_tokens.json",
                             "vocab.json",
                             "vocab.txt",
                             "merges.txt",
                             "tokenizer.model",
                             "spiece.model",
                             "chat_template.jinja",
                             "chat_template.json"};

// Removes a vocab.json that is the vocabulary of a run on characters or bytes: an earlier one, or the one that trained the
// model. A run of them writes its own.
void remove_vocabulary_of_run(const std::string& output) {
  const std::string path = output + "/vocab.json";
  std::error_code none;
  if (fs::is_regular_file(path, none) &&
      is_vocabulary(read_input_file(path, "the vocabulary", kLargestCopy)))
    fs::remove(path, none);
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

void copy_model_files(const std::string& from, const std::string& to) {
  std::error_code none;
  for (const char* const name : kCopied) {
    const std::string path = fmt::format("{}/{}", from, name);
    if (!fs::exists(path, none)) continue;
    const std::string bytes = read_input_file(path, "a file of the model", kLargestCopy);
    // A run on text has a vocab.json that is not a tokenizer's.
    if (std::string_view(name) == "vocab.json" && is_vocabulary(bytes)) continue;
    write_file(fmt::format("{}/{}", to, name), bytes);
  }
}

std::map<std::string, DType> begin_model_directory(const Job& job, const std::string& config_json) {
  write_file(fmt::format("{}/{}", job.output, kConfigJson), config_json);
  if (!job.model_directory.empty()) copy_model_files(job.model_directory, job.output);
  remove_vocabulary_of_run(job.output);
  if (job.save.dtype || job.model_directory.empty()) return {};
  return dtypes_in_directory(job.model_directory, job.model);
}

}  // namespace dstrain
