#include "runtime/config/model/family.h"

#include <fmt/core.h>

#include <algorithm>

namespace dstrain {

std::string_view name_of(InputRole role) {
  constexpr std::string_view names[] = {"token ids", "features", "labels"};
  return names[static_cast<int>(role)];
}

const ModelInput* ModelFamily::input(InputRole role) const {
  const auto found = std::ranges::find(inputs, role, &ModelInput::role);
  return found == inputs.end() ? nullptr : &*found;
}

bool ModelFamily::predicts_tokens() const {
  const ModelInput *ids = input(InputRole::token_ids), *labels = input(InputRole::labels);
  return ids && labels && ids->shape == labels->shape && ids->classes == labels->classes;
}

std::string_view ModelFamily::context_key() const {
  const ModelInput* ids = input(InputRole::token_ids);
  return ids ? ids->shape.front() : std::string_view{};
}

std::string_view ModelFamily::vocabulary_key() const {
  const ModelInput* ids = input(InputRole::token_ids);
  return ids ? ids->classes : std::string_view{};
}

std::string model_path(std::string_view name) {
  return fmt::format("{}{}", kModelSection, name);
}

}  // namespace dstrain
