// What the general ops compute for an index of their space: a formula of operands that are read through views.
#pragma once

#include <array>
#include <span>

#include "kernels/operands.h"
#include "runtime/ir/views/general_attrs.h"

namespace dstrain::simd {

constexpr int64_t kTile =
    256;  // elements that a formula is computed of at a time; a multiple of a pack

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
};

inline Walk walk_over(const Formula& formula, const Shape& space, std::span<const View> views,
                      std::span<const TensorSpec> operands) {
  Walk walk{.formula = formula, .space = space, .operands = operands.size()};
  for (size_t i = 0; i < operands.size(); ++i)
    walk.in[i] = {operands[i].dtype, views[i], views[i].bounded(space)};
  return walk;
}

}  // namespace dstrain::simd
