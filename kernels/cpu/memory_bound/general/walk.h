// What the general ops compute for an index of their space: a formula of operands that are read through views.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "kernels/operands.h"
#include "runtime/ir/views/general_attrs.h"

namespace dstrain::simd {

// Elements that a formula is computed of at a time: enough that a step's fixed cost counts little, few enough that a tile for
// each step stays in the first-level cache. A multiple of a pack.
constexpr int64_t kTile = 1024;

struct WalkOperand {
  DType dtype{};
  View view{};
  bool bounded = false;
  const void* data = nullptr;
};

struct Walk {
  Formula formula;
  Shape space{};  // collapsed
  std::array<WalkOperand, Formula::kMostInputs> in{};
  size_t operands = 0;

  void read(std::span<const Tensor> tensors) {
    for (size_t i = 0; i < operands; ++i) in[i].data = data(tensors, i);
  }
  int last() const { return space.rank - 1; }
  // Returns the dimension along which an operand's elements lie side by side, if those along the last dimension do not:
  // tiles along the last dimension would read one element of a cache line each.
  std::optional<int> across() const {
    for (size_t i = 0; i < operands; ++i)
      if (const auto d = across(in[i])) return d;
    return std::nullopt;
  }
  std::optional<int> across(const WalkOperand& operand) const {
    const View::Numbers& strides = operand.view.strides;
    const int64_t stride = strides[static_cast<size_t>(last())];
    if (stride == 0 || stride == 1) return std::nullopt;
    for (int d = 0; d < last(); ++d)
      if (strides[static_cast<size_t>(d)] == 1 && space[d] > 1) return d;
    return std::nullopt;
  }
};

inline Walk walk_over(const Formula& formula, const Shape& space, std::span<const View> views,
                      std::span<const TensorSpec> operands) {
  Walk walk{.formula = formula, .space = space, .operands = operands.size()};
  for (size_t i = 0; i < operands.size(); ++i)
    walk.in[i] = {operands[i].dtype, views[i], views[i].bounded(space)};
  return walk;
}

}  // namespace dstrain::simd
