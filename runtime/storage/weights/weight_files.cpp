#include "runtime/storage/weights/weight_files.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/mismatches.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestIndex = int64_t{64} << 20;
constexpr size_t kMostFiles = 4096;

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

// Throws UserError if an index does not list a file by its name alone.
void check_file_name(const std::string& name, const std::string& index) {
  if (!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
      name.find('\0') == std::string::npos)
    return;
  fail_user("{}: it lists the file \"{}\": expected the name of a file beside it", index,
            shown_name(name));
}

WeightIndex read_index(const std::string& path) {
  return parse_weight_index(read_input_file(path, "the index of the weights", kLargestIndex), path);
}

std::string beside(const std::string& path, const std::string& name) {
  return (fs::path(path).parent_path() / name).string();
}

bool is_index(const std::string& path) {
  return path.ends_with(kIndexSuffix);
}

// Refuses a file that is not there, where a pickle of its name is.
void refuse_pickle_instead(const fs::path& path) {
  fs::path pickle = path;
  if (is_there(path) || !is_there(pickle.replace_extension(".bin"))) return;
  const std::string folder = path.parent_path().string();
  if (path.filename() == "adapter_model.safetensors")
    fail_user(
        "{}: there is {} alone, a pickle, which may run any code when it is read, so dstrain does "
        "not read it: load the adapters with PEFT and save them again, "
        "PeftModel.from_pretrained(MODEL, DIR).save_pretrained(DIR), which writes {}",
        folder, pickle.filename().string(), path.filename().string());
  fail_user(
      "{}: there is {} alone, a pickle, which may run any code when it is loaded: `dstrain import "
      "{} --output NEW` reads it without, and writes {} to a new folder",
      folder, pickle.filename().string(), pickle.string(), kWeightsName);
}

// Returns what a file of another format has, as the header of a safetensors file.
SafetensorsHeader header_of(const std::vector<StoredWeight>& weights) {
  SafetensorsHeader header;
  for (const StoredWeight& w : weights)
    header.tensors.push_back({.name = w.name,
                              .type = safetensors_type(w.dtype),
                              .shape = w.shape,
                              .begin = w.begin,
                              .end = w.begin + w.bytes});
  std::ranges::sort(header.tensors, {}, &SafetensorsTensor::begin);
  header.index();
  return header;
}

}  // namespace

std::string shown_name(const std::string& name) {
  std::string text = name.size() > 120 ? name.substr(0, 120) + "..." : name;
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

WeightIndex parse_weight_index(std::string_view text, const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) fail_user("{} is not an index of weights: it is not JSON", path);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object())
    fail_user("{} is not an index of weights: it has no table \"weight_map\"", path);
  WeightIndex files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      fail_user("{}: the file of the tensor \"{}\" is {}, expected a text", path,
                shown_name(tensor), file.type_name());
    check_file_name(file.get_ref<const std::string&>(), path);
    files[file.get<std::string>()].push_back(tensor);
  }
  if (files.empty()) fail_user("{}: it lists no tensors", path);
  if (files.size() > kMostFiles)
    fail_user("{}: it lists {} files, more than the {} that weights can have", path, files.size(),
              kMostFiles);
  return files;
}

std::string weights_file(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) return path;
  const fs::path directory(path), file = directory / kWeightsName;
  if (fs::exists(file, none)) return file.string();
  std::string advice = "name a file of weights, or the output directory of a finished run";
  if (is_there(directory / kManifestName))
    advice = "it is a checkpoint: --resume goes on from it";
  else if (is_there(directory / kIndexName))
    advice = fmt::format("its weights are divided over several files: --model {} takes them", path);
  else if (is_there(directory / "config.json"))
    advice = fmt::format("--model {} takes the model of a folder with config.json", path);
  fail_user("--init_weights {}: the directory holds no model.safetensors; {}", path, advice);
}

std::string directory_weights(const std::string& directory, std::string_view option) {
  for (const std::string_view name : {kWeightsName, kIndexName})
    if (is_there(fs::path(directory) / name)) return fmt::format("{}/{}", directory, name);
  for (const char* const name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (is_there(fs::path(directory) / name))
      fail_user(
          "{0}: {1} is a pickle, which may run any code when it is loaded: `dstrain import {2} "
          "--output NEW` reads it without, and writes model.safetensors to a new folder",
          option, name, directory);
  fail_user("{}: there is no {} in {}; a run with --init_weights random starts from fresh weights",
            option, kWeightsName, directory);
}

std::vector<std::string> files_of_weights(const std::string& path) {
  std::vector<std::string> files{path};
  if (is_index(path))
    for (const auto& [name, tensors] : read_index(path)) files.push_back(beside(path, name));
  return files;
}

WeightFiles::WeightFiles(const std::string& path, const ForeignNames& names)
    : path_(path), names_(names) {
  if (is_index(path)) {
    open_index();
  } else {
    refuse_pickle_instead(path);
    InputFile file(path, "the weights file");
    SafetensorsHeader header = !names.archive.empty() && path == names.archive
                                   ? header_of(names.tensors)
                                   : read_safetensors_header(file);
    parts_.push_back({std::move(file), std::move(header)});
  }
  if (names_.prefix.empty()) return;
  lacks_prefix_ = std::ranges::none_of(parts_, [this](const Part& part) {
    return std::ranges::any_of(part.header.tensors, [this](const SafetensorsTensor& t) {
      return t.name.starts_with(names_.prefix);
    });
  });
}

void WeightFiles::open_index() {
  std::vector<std::string> missing;
  for (const auto& [name, tensors] : read_index(path_)) {
    InputFile file(beside(path_, name), "a file of weights that the index lists");
    SafetensorsHeader header = read_safetensors_header(file);
    // Some indexes list a head that is the embedding, and was not written.
    for (const std::string& tensor : tensors)
      if (!header.find(tensor) && !is_ignored(tensor))
        missing.push_back(fmt::format("{} in {}", shown_name(tensor), name));
    parts_.push_back({std::move(file), std::move(header)});
  }
  if (!missing.empty())
    fail_user("{}: it lists tensors that its files do not have ({}):\n  {}", path_, missing.size(),
              listed(missing));
  std::map<std::string_view, const Part*> seen;
  for (const Part& part : parts_)
    for (const SafetensorsTensor& t : part.header.tensors)
      if (const auto [other, fresh] = seen.try_emplace(t.name, &part); !fresh)
        fail_user("{}: tensor \"{}\" is in {} and in {}: remove one of them", path_,
                  shown_name(t.name), other->second->file.path(), part.file.path());
}

std::optional<WeightFiles::Found> WeightFiles::find(std::string_view name) const {
  const auto stored = [this](std::string_view tensor) -> std::optional<Found> {
    for (const Part& part : parts_)
      if (const SafetensorsTensor* found = part.header.find(tensor))
        return Found{&part.file, found};
    return std::nullopt;
  };
  const bool bare = lacks_prefix_ && name.starts_with(names_.prefix);
  if (const auto found = stored(bare ? name.substr(names_.prefix.size()) : name)) return found;
  for (const StoredName& other : names_.stored_names)
    if (other.tensor == name) return stored(other.stored);
  return std::nullopt;
}

bool WeightFiles::is_ignored(const std::string& name) const {
  const bool prefixed = !names_.prefix.empty() && name.starts_with(names_.prefix);
  const std::string bare = prefixed ? name.substr(names_.prefix.size()) : name;
  return std::ranges::any_of(names_.ignored, [&bare](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), bare.c_str(), 0) == 0;
  });
}

void WeightFiles::for_each(
    const std::function<void(const SafetensorsTensor&, const std::string&)>& f) const {
  for (const Part& part : parts_)
    for (const SafetensorsTensor& t : part.header.tensors) {
      if (is_ignored(t.name)) continue;
      f(t, lacks_prefix_ ? names_.prefix + t.name : t.name);
    }
}

}  // namespace dstrain
