#include "launcher/init/model_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/family/measures.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kHeadSize = 64;  // channels, as in most small models
constexpr int64_t kMostHeads = 512;
// transformers' name of the channels inside an MLP, in families whose default is a number.
constexpr std::string_view kInnerKey = "intermediate_size";

bool has_inner_size(const ModelFamily& family) {
  return std::ranges::any_of(family.keys, [](const ModelKey& k) { return k.name() == kInnerKey; });
}

// Returns the values of a model with so many heads.
std::vector<std::pair<std::string_view, int64_t>> sizes_of(const ModelFamily& family,
                                                           int64_t heads) {
  const int64_t width = heads * kHeadSize;
  std::vector<std::pair<std::string_view, int64_t>> sizes{{family.layers_key, heads},
                                                          {family.width_key, width}};
  // An MLP with a gate has three matrices of this size instead of two of 4 times the width.
  if (has_inner_size(family)) sizes.emplace_back(kInnerKey, (width * 8 / 3 + 63) / 64 * 64);
  sizes.emplace_back(family.heads_key, heads);
  return sizes;
}

double parameters_of(ModelConfig model, int64_t heads) {
  for (const auto& [key, value] : sizes_of(model.family(), heads)) model.set(key, value);
  return model.measures().parameters;
}

}  // namespace

std::vector<ConfigLine> lines_of_size(const ModelConfig& base, double parameters) {
  const ModelFamily& family = base.family();
  if (family.heads_key.empty() || family.layers_key.empty() || !family.experts_key.empty() ||
      family.count_layers != nullptr || family.is_fixed)
    fail_user(
        "--size: the sizes of a {} do not follow from a number of parameters: leave it out, and "
        "change them in the file",
        family.title);
  const int64_t keys = family.kv_heads_key.empty() ? 0 : base.integer(family.kv_heads_key);
  const int64_t step = std::max<int64_t>(keys, 1);
  int64_t heads = step;
  while (heads + step <= kMostHeads && parameters_of(base, heads + step) <= parameters)
    heads += step;
  // The nearer one of the two between which the number lies.
  if (heads + step <= kMostHeads &&
      parameters_of(base, heads + step) / parameters < parameters / parameters_of(base, heads))
    heads += step;
  std::vector<ConfigLine> lines;
  for (const auto& [key, value] : sizes_of(family, heads))
    lines.push_back({model_path(key), fmt::format("{}", value)});
  return lines;
}

}  // namespace dstrain
