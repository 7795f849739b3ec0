#include "runtime/engine/files/adapter_sums.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/core/fine_tuning/fine_tuning.h"

namespace dstrain {
namespace {

// Returns the name of the weight that an adapter belongs to.
std::string weight_of_adapter(std::string_view adapter) {
  return fmt::format("{}.weight", adapter.substr(0, adapter.size() - kLoraA.size()));
}

}  // namespace

AdapterSums::AdapterSums(const StateRegister& adapters, double scale)
    : scale_(static_cast<float>(scale)) {
  for (const StateEntry& entry : adapters) {
    if (!is_adapter(entry.name)) continue;
    Adapter& adapter = adapters_[weight_of_adapter(entry.name)];
    const bool is_a = entry.name.ends_with(kLoraA);
    (is_a ? adapter.a : adapter.b).resize(static_cast<size_t>(entry.global_shape.elements()));
    adapter.r = entry.global_shape[is_a ? 0 : 1];
    if (is_a) adapter.inputs = entry.global_shape[1];
  }
}

void AdapterSums::keep(const std::string& name, int64_t begin, const Tensor& values) {
  Adapter& adapter = adapters_.at(weight_of_adapter(name));
  std::vector<float>& part = name.ends_with(kLoraA) ? adapter.a : adapter.b;
  std::copy_n(values.as<const float>(), values.elements(), part.begin() + begin);
}

void AdapterSums::add(std::string_view weight, int64_t begin, std::span<float> values) const {
  const auto found = adapters_.find(weight);
  if (found == adapters_.end()) return;
  const Adapter& adapter = found->second;
  const int64_t end = begin + static_cast<int64_t>(values.size());
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / adapter.inputs, first = at % adapter.inputs;
    const int64_t columns = std::min(adapter.inputs - first, end - at);
    float* const to = values.data() + (at - begin);
    for (int64_t k = 0; k < adapter.r; ++k) {
      const float factor = scale_ * adapter.b[static_cast<size_t>(row * adapter.r + k)];
      const float* const a = adapter.a.data() + k * adapter.inputs + first;
      for (int64_t c = 0; c < columns; ++c) to[c] += factor * a[c];
    }
    at += columns;
  }
}

}  // namespace dstrain
