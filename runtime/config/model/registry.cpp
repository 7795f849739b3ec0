#include "runtime/config/model/registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

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
    for (const ModelKey& key : family->keys) {
      rows.push_back(key.spec);
      rows.back().only = family->type;
    }
  const auto section = std::ranges::find(keys_, "dstrain.model", &KeySpec::key);
  keys_.insert(section + 1, rows.begin(), rows.end());
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
