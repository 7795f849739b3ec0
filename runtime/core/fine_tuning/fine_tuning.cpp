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

bool is_last_part(std::string_view last, std::string_view module) {
  if (!module.ends_with(last)) return false;
  return module.size() == last.size() || module[module.size() - last.size() - 1] == '.';
}

bool LoraConfig::takes(std::string_view module, bool numbered) const {
  const auto names = [module](const std::string& last) { return is_last_part(last, module); };
  if (std::ranges::any_of(saved, names)) return false;
  return all_linear ? numbered : std::ranges::any_of(targets, names);
}

bool LoraConfig::saves(std::string_view parameter) const {
  if (is_adapter(parameter)) return false;
  const std::string_view module =
      parameter.substr(0, std::min(parameter.rfind('.'), parameter.size()));
  return std::ranges::any_of(
      saved, [module](const std::string& last) { return is_last_part(last, module); });
}

const ParameterGroup* FineTuning::group_of(std::string_view parameter) const {
  for (const ParameterGroup& group : groups)
    for (const std::string& pattern : group.match)
      if (matches(pattern, parameter)) return &group;
  return nullptr;
}

bool FineTuning::with_adapters(std::string_view parameter) const {
  return is_adapter(parameter) || (lora && lora->saves(parameter));
}

bool FineTuning::freezes(std::string_view parameter) const {
  if (lora && !with_adapters(parameter)) return true;
  const ParameterGroup* group = group_of(parameter);
  return group && !group->trainable;
}

bool FineTuning::may_freeze() const {
  return lora || !std::ranges::all_of(groups, &ParameterGroup::trainable);
}

}  // namespace dstrain
