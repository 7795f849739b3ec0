#include "runtime/config/read/config_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
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

// Returns whether a member, or one inside it, was changed on the command line or by what the tokenizer has.
bool has_changes(const Node& node) {
  return std::ranges::any_of(node.members, [](const Member& m) {
    return m.place.source == Source::set || m.place.source == Source::tokenizer ||
           has_changes(m.value);
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

// Returns whether transformers read the field's name of a dtype, and files can have it.
bool is_plain_dtype(const Node& section) {
  const Member* const dtype = section.member(dtype_field(section));
  return !dtype || dtype->value.is(Node::Kind::null) ||
         one_of("float32|float16|bfloat16", dtype->value.text);
}

Node value_node(const ModelConfig::Value& value) {
  Node node;
  if (const auto* const integer = std::get_if<int64_t>(&value)) {
    node.kind = Node::Kind::integer;
    node.integer = *integer;
  } else if (const auto* const real = std::get_if<double>(&value)) {
    node.kind = Node::Kind::real;
    node.real = *real;
  } else if (const auto* const flag = std::get_if<bool>(&value)) {
    node.kind = Node::Kind::boolean;
    node.boolean = *flag;
  } else {
    node.kind = Node::Kind::string;
    node.text = std::get<std::string>(value);
  }
  return node;
}

// Returns a description with all keys of the family.
Json all_keys(const ModelConfig& model) {
  const ModelFamily& family = model.family();
  Node section;
  section.kind = Node::Kind::object;
  const ModelConfig defaults(family);
  for (const ModelKey& key : family.keys) {
    const ModelConfig::Value& value = model.value(key.name());
    // Keys inside a section, and texts of this program's own, are what transformers take where they are absent.
    const bool nested =
        key.name().find('.') != std::string_view::npos || key.spec.type == Type::string;
    if (nested && value == defaults.value(key.name())) continue;
    const bool may_be_null = key.spec.fallback.empty() || key.spec.nullable;
    const bool unset =
        may_be_null && key.spec.type == Type::integer && value == ModelConfig::Value{int64_t{0}};
    put(section, key.name(), unset ? Node{} : value_node(value));
  }
  if (const auto& restore = family.hugging_face->restore) restore(section);
  Json json{{"architectures", {family.hugging_face->architecture}}, {"model_type", family.type}};
  json.update(json_of(section));
  return json;
}

// Names transformers' model whose head is a score, if the model gives one. Their classes have one label then.
void name_score(const ModelConfig& model, Json& json) {
  if (!model.gives_score()) return;
  std::string name(model.family().hugging_face->architecture);
  for (const std::string_view end : {"ForCausalLM", "LMHeadModel"})
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  if (model.family().type.ends_with("_text")) name += "Text";
  json["architectures"] = Json::array({name + "ForSequenceClassification"});
  json["id2label"] = {{"0", "LABEL_0"}};
  json["label2id"] = {{"LABEL_0", 0}};
}

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string config_json_of(const ModelConfig& model, DType dtype,
                           const std::vector<std::string_view>& unset) {
  Json json = all_keys(model);
  name_score(model, json);
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
  const Member* const given = find(merged.root, kModelSectionName);
  const Node root = without_ignored(merged);
  const Member* const model = find(root, kModelSectionName);
  const bool described = model && model->value.member("model_type");
  if (!described) {
    Json json = all_keys(job.model);
    name_score(job.model, json);
    json["dtype"] = transformers_name(job.save.dtype.value_or(job.save.usual));
    return text_of(json);
  }
  Node section = model->value;
  std::erase_if(section.members, [](const Member& m) {
    return kAddedTokens.substr(kModelSection.size()) == m.key ||
           kQuantization.substr(kModelSection.size()) == m.key;
  });
  if (family.hugging_face->restore) family.hugging_face->restore(section);
  const bool same_dtype = !job.save.dtype && is_plain_dtype(section);
  const bool changed =
      has_changes(given->value) || json_text(section) != json_text(given->value) || !same_dtype;
  if (!changed && !job.model.gives_score() && Json::accept(merged.model_text))
    return merged.model_text;
  Json json = json_of(section);
  name_score(job.model, json);
  if (!same_dtype)
    json[std::string(dtype_field(section))] =
        transformers_name(job.save.dtype.value_or(job.save.usual));
  return text_of(json);
}

}  // namespace dstrain
