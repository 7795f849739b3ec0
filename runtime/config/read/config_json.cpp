#include "runtime/config/read/config_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "runtime/config/model/family.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      break;
    case Node::Kind::boolean:
      return node.boolean;
    case Node::Kind::integer:
      return node.integer;
    case Node::Kind::real:
      return node.real;
    case Node::Kind::string:
      return node.text;
    case Node::Kind::array: {
      Json list = Json::array();
      for (const Node& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case Node::Kind::object: {
      Json object = Json::object();
      for (const Member& m : node.members) object[m.key] = json_of(m.value);
      return object;
    }
  }
  return nullptr;
}

// Returns whether a member, or one inside it, was changed on the command line.
bool has_changes(const Node& node) {
  return std::ranges::any_of(node.members, [](const Member& m) {
    return m.place.source == Source::set || has_changes(m.value);
  });
}

std::string_view transformers_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

// Returns the name of the field that says the dtype.
std::string_view dtype_field(const Node& section) {
  const std::string_view old = kOldDtypeOfFiles.substr(kModelSection.size());
  return section.member(old) && !section.member("dtype") ? old : "dtype";
}

// Returns a description with all keys of the family.
Json all_keys(const ModelConfig& model) {
  const ModelFamily& family = model.family();
  Json json{{"architectures", {family.hugging_face->architecture}}, {"model_type", family.type}};
  const ModelConfig defaults(family);
  for (const ModelKey& key : family.keys) {
    std::string path = "/" + std::string(key.name());
    const ModelConfig::Value& value = model.value(key.name());
    // Keys inside a section, and texts of this program's own, are what transformers take where they are absent.
    const bool nested = path.find('.') != std::string::npos || key.spec.type == Type::string;
    if (nested && value == defaults.value(key.name())) continue;
    std::ranges::replace(path, '.', '/');
    Json& field = json[Json::json_pointer(path)];
    std::visit([&field](const auto& v) { field = v; }, value);
    const bool may_be_null = key.spec.fallback.empty() || key.spec.nullable;
    if (may_be_null && key.spec.type == Type::integer && field == 0) field = nullptr;
  }
  return json;
}

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string config_json_of(const ModelConfig& model, DType dtype,
                           const std::vector<std::string_view>& unset) {
  Json json = all_keys(model);
  for (const std::string_view field : unset) json[std::string(field)] = nullptr;
  json["dtype"] = transformers_name(dtype);
  return text_of(json);
}

std::string with_dtype_of_files(const std::string& text, DType dtype, const std::string& path) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) fail_user("{}: expected a JSON object", path);
  const char* const field =
      json.contains("torch_dtype") && !json.contains("dtype") ? "torch_dtype" : "dtype";
  const Json name = transformers_name(dtype);
  if (json.contains(field) && json[field] == name) return text;
  json[field] = name;
  return text_of(json);
}

std::string config_json(const Merged& merged, const Job& job) {
  const ModelFamily& family = job.model.family();
  if (!family.hugging_face) return "";
  const Member* const model = find(merged.root, "dstrain.model");
  const bool described = model && model->value.member("model_type");
  const bool changed = (model && has_changes(model->value)) || job.save.dtype.has_value();
  if (described && !changed && Json::accept(merged.model_text)) return merged.model_text;
  Json json = described ? json_of(model->value) : all_keys(job.model);
  if (job.save.dtype || !described)
    json[described ? std::string(dtype_field(model->value)) : "dtype"] =
        transformers_name(job.save.dtype.value_or(job.save.usual));
  return text_of(json);
}

}  // namespace dstrain
