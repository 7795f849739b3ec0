#include "runtime/core/fine_tuning/fine_tuning.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>

namespace dstrain {

bool matches(const std::string& pattern, std::string_view name) {
  return ::fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0;
}

double LoraConfig::scale() const {
  const auto rank = static_cast<double>(r);
  return alpha / (rslora ? std::sqrt(rank) : rank);
}

bool LoraConfig::takes(std::string_view module, bool numbered) const {
  if (all_linear) return numbered;
  return std::ranges::any_of(targets, [module](const std::string& target) {
    return module == target || module.ends_with("." + target);
  });
}

const ParameterGroup* FineTuning::group_of(std::string_view parameter) const {
  for (const ParameterGroup& group : groups)
    for (const std::string& pattern : group.match)
      if (matches(pattern, parameter)) return &group;
  return nullptr;
}

bool FineTuning::freezes(std::string_view parameter) const {
  if (lora && !is_adapter(parameter)) return true;
  const ParameterGroup* group = group_of(parameter);
  return group && !group->trainable;
}

bool FineTuning::may_freeze() const {
  return lora || !std::ranges::all_of(groups, &ParameterGroup::trainable);
}

}  // namespace dstrain
