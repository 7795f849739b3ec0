#include "models/exported/fold/promote.h"

#include <optional>

namespace dstrain::exported {
namespace {

bool is_half(ScalarType type) {
  return type == ScalarType::f16 || type == ScalarType::bf16;
}

using Maybe = std::optional<ScalarType>;

Maybe promoted_with(Maybe a, ScalarType b) {
  return a ? promoted(*a, b) : b;
}

// `higher` decides, unless `lower` is of a later kind: truth values, whole numbers, fractions.
Maybe combined(Maybe higher, Maybe lower) {
  if (!higher || !lower) return higher ? higher : lower;
  if (is_floating(*higher)) return higher;
  if (*higher == ScalarType::boolean || is_floating(*lower)) return promoted(*higher, *lower);
  return higher;
}

}  // namespace

ScalarType promoted(ScalarType a, ScalarType b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  if (is_half(a) && is_half(b)) return ScalarType::f32;
  if (a == ScalarType::u8 && b == ScalarType::i8) return ScalarType::i16;
  return b;  // types are in the order in which each holds those before it
}

ScalarType result_type(const std::vector<Operand>& operands) {
  Maybe tensors, scalars, numbers;
  for (const Operand& operand : operands) {
    if (operand.is_number)
      numbers = promoted_with(
          numbers, is_floating(operand.tensor.type) ? ScalarType::f32 : operand.tensor.type);
    else if (operand.tensor.rank() == 0)
      scalars = promoted_with(scalars, operand.tensor.type);
    else
      tensors = promoted_with(tensors, operand.tensor.type);
  }
  return combined(tensors, combined(scalars, numbers)).value();
}

}  // namespace dstrain::exported
