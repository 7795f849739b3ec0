#include "runtime/plan/pipeline/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <regex>
#include <string_view>

#include "runtime/config/pipeline_schedule.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Returns the sums of the first 0, 1, 2 .. values.
template <class T>
std::vector<T> sums_of(const std::vector<T>& values) {
  std::vector<T> sums{T{}};
  for (const T& value : values) sums.push_back(sums.back() + value);
  return sums;
}

// For the first i layers in j parts: where the last part begins.
class SplitPoints {
 public:
  SplitPoints(int64_t layers, int parts)
      : layers_(layers), parts_(parts), begins_(static_cast<size_t>((layers + 1) * (parts + 1))) {}

  size_t at(int64_t i, int j) const { return static_cast<size_t>(i * (parts_ + 1) + j); }
  size_t size() const { return begins_.size(); }
  void set(int64_t i, int j, int64_t begin) { begins_[at(i, j)] = begin; }
  // Returns the division of all layers.
  std::vector<int64_t> division() const {
    std::vector<int64_t> first{layers_};
    for (int j = parts_; j > 0; --j) first.push_back(begins_[at(first.back(), j)]);
    std::ranges::reverse(first);
    return first;
  }

 private:
  int64_t layers_;
  int parts_;
  std::vector<int64_t> begins_;
};

constexpr double kImpossible = std::numeric_limits<double>::infinity();

using Join = double (*)(double of_parts_before, double part);

// The best division, and what it costs.
struct CheapestDivision {
  double cost = 0;
  std::vector<int64_t> first;
};

// Returns the division whose cost is smallest, if `join` adds a part to the cost of those before it; the last
// that is as good. No part is empty.
CheapestDivision cheapest(int64_t layers, int parts, Join join,
                          const std::function<double(int, int64_t, int64_t)>& cost_of) {
  SplitPoints points(layers, parts);
  std::vector<double> best(points.size(), kImpossible);
  best[points.at(0, 0)] = 0;
  for (int j = 1; j <= parts; ++j)
    for (int64_t i = j; i <= layers; ++i)
      for (int64_t k = j - 1; k < i; ++k) {
        const double before = best[points.at(k, j - 1)];
        if (before == kImpossible) continue;
        const double cost = join(before, cost_of(j - 1, k, i));
        if (cost > best[points.at(i, j)]) continue;
        best[points.at(i, j)] = cost;
        points.set(i, j, k);
      }
  return {best[points.at(layers, parts)], points.division()};
}

std::vector<int64_t> weights_by_name(const std::string& expression,
                                     const std::vector<LayerSize>& layers) {
  std::vector<int64_t> weights;
  try {
    const std::regex regex(expression, std::regex::ECMAScript | std::regex::icase);
    for (const LayerSize& layer : layers) weights.push_back(std::regex_search(layer.name, regex));
  } catch (const std::regex_error& e) {
    fail_user("\"{}{}\": expected a regular expression ({})", kByLayerName, expression, e.what());
  }
  if (std::ranges::count(weights, 1) > 0) return weights;
  constexpr size_t kFirst = 4;  // of a long list; its last one follows
  std::vector<std::string> names;
  for (const LayerSize& layer : layers) {
    if (names.size() <= kFirst || &layer == &layers.back())
      names.push_back(layer.name);
    else
      names[kFirst] = "...";
  }
  fail_user("\"{}{}\": no layer has such a name; the layers are {}", kByLayerName, expression,
            fmt::join(names, ", "));
}

}  // namespace

std::vector<int64_t> partition_uniform(int64_t layers, int parts) {
  std::vector<int64_t> first{0};
  for (int part = 0; part < parts; ++part)
    first.push_back(first.back() + layers / parts + (part < layers % parts));
  return first;
}

std::vector<int64_t> partition_balanced(const std::vector<int64_t>& weights, int parts) {
  const auto layers = static_cast<int64_t>(weights.size());
  if (layers <= parts) return partition_uniform(layers, parts);
  const std::vector<int64_t> sums = sums_of(weights);
  SplitPoints points(layers, parts);
  struct Extent {
    int64_t most = 0, least = INT64_MAX;
  };
  std::vector<Extent> best(points.size());
  for (int64_t i = 1; i <= layers; ++i)
    for (int j = 1; j <= std::min<int64_t>(i, parts); ++j) {
      bool first = true;
      // One part begins with the first layer; others need a layer each before the last.
      for (int64_t k = j - 1; k < (j == 1 ? 1 : i); ++k) {
        const int64_t part = sums[static_cast<size_t>(i)] - sums[static_cast<size_t>(k)];
        const Extent& before = best[points.at(k, j - 1)];
        const Extent extent{std::max(before.most, part), std::min(before.least, part)};
        Extent& chosen = best[points.at(i, j)];
        if (!first && extent.most - extent.least > chosen.most - chosen.least) continue;
        first = false;
        chosen = extent;
        points.set(i, j, k);
      }
    }
  return points.division();
}

std::vector<int64_t> partition_smallest_maximum(
    int64_t layers, int parts,
    const std::function<double(int part, int64_t first, int64_t last)>& size) {
  if (layers <= parts) return partition_uniform(layers, parts);
  const Join larger = [](double before, double part) { return std::max(before, part); };
  const double most = cheapest(layers, parts, larger, size).cost;
  const Join sum = [](double before, double part) { return before + part; };
  return cheapest(layers, parts, sum,
                  [&](int part, int64_t first, int64_t last) {
                    const double value = size(part, first, last);
                    return value > most ? kImpossible : value * value;
                  })
      .first;
}

std::vector<int64_t> partition_by(const std::string& method, const std::vector<LayerSize>& layers,
                                  int parts, const PartBytes& bytes) {
  const auto count = static_cast<int64_t>(layers.size());
  if (method == "uniform") return partition_uniform(count, parts);
  if (method == "parameters") {
    std::vector<int64_t> weights;
    for (const LayerSize& layer : layers) weights.push_back(layer.parameters);
    return partition_balanced(weights, parts);
  }
  if (method.starts_with(kByLayerName))
    return partition_balanced(weights_by_name(method.substr(kByLayerName.size()), layers), parts);
  if (method != "time" && method != "memory")
    fail_user(
        "\"{}\": expected uniform, parameters, type:REGEX, memory, time, or a "
        "list of first layers",
        method);
  std::vector<double> sizes;
  for (const LayerSize& layer : layers)
    sizes.push_back(method == "time" ? layer.work : static_cast<double>(layer.bytes));
  const std::vector<double> sums = sums_of(sizes);
  return partition_smallest_maximum(count, parts, [&](int part, int64_t first, int64_t last) {
    if (method == "memory" && bytes) return static_cast<double>(bytes(part, first, last));
    return sums[static_cast<size_t>(last)] - sums[static_cast<size_t>(first)];
  });
}

}  // namespace dstrain
