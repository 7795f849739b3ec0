#include "runtime/config/report/auto_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr std::string_view kBatchSizes =
    "train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps";
constexpr std::string_view kKeys =
    "gradient_clipping|communication_data_type|dstrain.seed|dstrain.steps|dstrain.reduce|"
    "dstrain.weight_decay_exclude";
constexpr std::string_view kSections[] = {"optimizer.",    "scheduler.",        "fp16.",
                                          "bf16.",         "data_types.",       "dstrain.model.",
                                          "dstrain.data.", "dstrain.comm_hook."};

// Returns whether the numbers of a run depend on the key.
bool moves_numbers(std::string_view key) {
  return one_of(kKeys, key) ||
         std::ranges::any_of(kSections, [key](std::string_view s) { return key.starts_with(s); });
}

}  // namespace

std::string auto_line(const LoadedConfig& loaded) {
  std::vector<std::string> parts;
  for (const Setting& s : loaded.settings) {
    const bool told = one_of(kBatchSizes, s.key) ? !loaded.default_batch : moves_numbers(s.key);
    if (!told || !s.origin.starts_with("auto:")) continue;
    const std::string part = fmt::format("{} {}", s.key, s.value);
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  }
  return parts.empty() ? "" : fmt::format("\"auto\" became {}", fmt::join(parts, ", "));
}

}  // namespace dstrain
