#include "runtime/config/keys/table/model_registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/config/keys/table/key_table.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr Rule kTypeOfFiles{
    [](const Facts&, const KeySpec&, const Node&) -> Judgement { return {}; }, "honoured"};

}  // namespace

ModelRegistry::ModelRegistry(std::vector<const ModelFamily*> families)
    : families_(std::move(families)) {
  check(!families_.empty(), "a program without models");
  for (const ModelFamily* family : families_) check_inputs(*family);
  default_type_ = fmt::format("\"{}\"", families_.front()->type);
  choices_ = types("|");
  keys_ = common_keys();
  std::vector<KeySpec> rows;
  rows.push_back({.key = "dstrain.model.type",
                  .type = Type::choice,
                  .fallback = default_type_,
                  .choices = choices_});
  for (const ModelFamily* family : families_)
    if (family->hugging_face)
      hugging_face_choices_ +=
          fmt::format("{}{}", hugging_face_choices_.empty() ? "" : "|", family->type);
  if (!hugging_face_choices_.empty())
    rows.push_back({.key = kHuggingFaceType,
                    .type = Type::choice,
                    .note = "config.json's name of the type",
                    .rule = &kTypeOfFiles,
                    .choices = hugging_face_choices_,
                    .alias = kModelType});
  for (const ModelFamily* family : families_)
    for (const ModelKey& key : family->keys) {
      rows.push_back(key.spec);
      rows.back().only = family->type;
    }
  for (const ModelFamily* family : families_)
    if (family->hugging_face)
      for (const KeySpec& field : family->hugging_face->fields)
        add_field(field, family->type, rows);
  const auto section = std::ranges::find(keys_, "dstrain.model", &KeySpec::key);
  keys_.insert(section + 1, rows.begin(), rows.end());
}

void ModelRegistry::add_field(const KeySpec& field, std::string_view type,
                              std::vector<KeySpec>& rows) {
  const auto same = std::ranges::find_if(rows, [&](const KeySpec& row) {
    return row.key == field.key && row.type == field.type && row.fallback == field.fallback &&
           row.state == field.state && row.note == field.note && row.rule == field.rule &&
           row.choices == field.choices;
  });
  if (same == rows.end()) {
    rows.push_back(field);
    rows.back().only = only_.emplace_back(type);
    return;
  }
  const std::string all = fmt::format("{}|{}", same->only, type);
  same->only = only_.emplace_back(all);
}

const ModelFamily* ModelRegistry::find(std::string_view type) const {
  const auto found = std::ranges::find(families_, type, &ModelFamily::type);
  return found == families_.end() ? nullptr : *found;
}

std::string ModelRegistry::types(std::string_view separator) const {
  std::string text;
  for (const ModelFamily* family : families_)
    text += fmt::format("{}{}", text.empty() ? "" : separator, family->type);
  return text;
}

}  // namespace dstrain
