#include "runtime/config/read/model_source.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/hub_folder.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

void read_section(ModelSource& source, std::string_view what) {
  source.text = read_input_file(source.file, what, kMaxConfigBytes);
  try {
    source.section = read_config(source.text, Source::model_file);
  } catch (const SyntaxError& e) {
    fail_user("{}:{}:{}: {}", source.file, e.line, e.column, e.what());
  }
}

// Stops where a file in config.json's form does not name the family.
void check_family_is_named(const ModelSource& source) {
  const Member* const type = source.section.member("model_type");
  if (!type || type->value.is(Node::Kind::null))
    fail_user("{}: there is no \"model_type\" in it: expected the config.json of a model",
              source.file);
}

// Returns the folder of a file that is the config.json of one with weights; empty: it is not.
std::string folder_of_weights(const std::string& file) {
  const fs::path path(file);
  if (path.filename() != kConfigJson) return "";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code none;
  for (const char* const weights : {"model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(folder / weights, none)) return folder.string();
  return "";
}

ModelSource read_directory(const std::string& name, std::string_view option) {
  ModelSource source;
  source.directory = name;
  while (source.directory.size() > 1 && source.directory.ends_with('/'))
    source.directory.pop_back();
  source.file = fmt::format("{}/{}", source.directory, kConfigJson);
  std::error_code none;
  if (!fs::exists(source.file, none)) {
    if (fs::exists(source.directory + "/resolved_config.json", none))
      fail_user(
          "{}{}: the folder is that of a run whose model is not Hugging Face's: --init_weights "
          "starts from its weights, with its model in the configuration",
          option, printable(name));
    if (fs::exists(source.directory + "/adapter_config.json", none))
      fail_user(
          "{}{}: the folder holds adapters (adapter_config.json), and no model: name the folder of "
          "the model that they adapt, and theirs in dstrain.lora.init",
          option, printable(name));
    const std::string advice = hub_folder_advice(source.directory);
    fail_user("{}{}: there is no {} in the folder, which save_pretrained writes{}{}", option,
              printable(name), kConfigJson, advice.empty() ? "" : "; ", advice);
  }
  read_section(source, "the model's configuration");
  check_family_is_named(source);
  return source;
}

Node section_at(SourcePlace place) {
  Node section;
  section.kind = Node::Kind::object;
  section.place = place;
  return section;
}

Node text_at(std::string text, SourcePlace place) {
  Node node;
  node.kind = Node::Kind::string;
  node.text = std::move(text);
  node.place = place;
  return node;
}

// The model of a family's own kind of file, which is read where its sizes are asked for.
ModelSource archive_source(const std::string& name, SourcePlace place, const ModelFamily& family) {
  ModelSource source;
  source.section = section_at(place);
  put(source.section, "type", text_at(std::string(family.type), place));
  put(source.section, family.file_key, text_at(name, place));
  source.file = name;
  return source;
}

}  // namespace

ModelSource read_model(const std::string& name, std::string_view option, SourcePlace place,
                       const ModelRegistry& models) {
  std::error_code none;
  if (models.find(name)) {
    ModelSource source;
    source.section = section_at(place);
    put(source.section, "type", text_at(name, place));
    source.has_namesake = fs::exists(fs::path(name) / kConfigJson, none);
    return source;
  }
  if (fs::is_directory(name, none)) return read_directory(name, option);
  for (const ModelFamily* family : models.families())
    if (family->open && name.ends_with(family->file_suffix))
      return archive_source(name, place, *family);
  if (name.size() < 5 || !name.ends_with(".json"))
    fail_user(
        "{}{}: expected {}, the folder of a model with config.json, or a file that ends in .json "
        "or "
        ".pt2",
        option, printable(name), models.types(", "));
  ModelSource source;
  source.file = name;
  read_section(source, "the model file");
  if (source.section.member("model_type")) {
    if (!source.section.member("type")) check_family_is_named(source);
    source.folder_of_weights = folder_of_weights(name);
  }
  return source;
}

}  // namespace dstrain
