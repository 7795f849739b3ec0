#include "runtime/config/solve/model/solve_fine_tuning.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "runtime/config/keys/dstrain/parameter_groups.h"

namespace dstrain {
namespace {

constexpr std::string_view kGroups = "dstrain.parameter_groups", kLora = "dstrain.lora",
                           kAllLinear = "all-linear", kSaved = "dstrain.lora.modules_to_save";

std::vector<ParameterGroup> solve_groups(Values& v, const Diagnostics& diagnostics) {
  const Member* const list = v.given(kGroups);
  if (!list || diagnostics.stopped(kGroups)) return {};
  v.record(kGroups, json_text(list->value), v.origin_of(kGroups));
  return parameter_groups(list->value);
}

LoraConfig solve_lora(Values& v) {
  LoraConfig lora{.r = v.integer("dstrain.lora.r"),
                  .alpha = v.real("dstrain.lora.alpha"),
                  .dropout = v.real("dstrain.lora.dropout"),
                  .rslora = v.flag("dstrain.lora.rslora")};
  lora.targets = v.texts("dstrain.lora.targets");
  if (lora.targets.empty()) lora.targets = {v.text("dstrain.lora.targets")};
  lora.all_linear = lora.targets == std::vector<std::string>{std::string(kAllLinear)};
  if (lora.all_linear) lora.targets.clear();
  lora.saved = v.texts(kSaved);
  if (v.given("dstrain.lora.base")) {
    const std::string base = v.text("dstrain.lora.base", "", "");
    for (const BlockFormat format : {BlockFormat::int8, BlockFormat::nf4})
      if (base == name_of(format)) lora.base = format;
  }
  return lora;
}

}  // namespace

void solve_fine_tuning(Job& job, Values& values, const Diagnostics& diagnostics) {
  FineTuning tuning{.groups = solve_groups(values, diagnostics)};
  if (values.given(kLora)) {
    tuning.lora = solve_lora(values);
    if (values.given("dstrain.lora.init"))
      job.adapters.init = values.text("dstrain.lora.init", "", "");
    job.adapters.merge = values.flag("dstrain.lora.merge");
  }
  job.model.set_fine_tuning(std::move(tuning));
}

void check_fine_tuning(const Job& job, Diagnostics& diagnostics) {
  const std::vector<ParameterGroup>& groups = job.model.fine_tuning().groups;
  const auto is_scaled = [](const ParameterGroup& group) { return group.lr_scale != 1; };
  if (is_one_bit(job.optimizer.kind) && std::ranges::any_of(groups, is_scaled))
    diagnostics.error(kGroups,
                      "a 1-bit optimizer has one learning rate for all parameters: remove "
                      "lr_scale, or use an optimizer that sends gradients, such as AdamW",
                      {"optimizer.type"});
  const std::optional<LoraConfig>& lora = job.model.fine_tuning().lora;
  if (!lora) return;
  for (const std::string& module : lora->saved) {
    if (module.empty()) diagnostics.error(kSaved, "a name is empty: expected names of modules");
    if (std::ranges::find(lora->targets, module) != lora->targets.end())
      diagnostics.error(kSaved,
                        fmt::format("{} gets an adapter by dstrain.lora.targets, and a module "
                                    "that is trained as a whole has none: remove it from "
                                    "one of the two",
                                    module));
  }
}

}  // namespace dstrain
