// Whether a formula is another one with operands of its own: how passes find what an op is made for.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>

#include "runtime/ir/formula/formula.h"

namespace dstrain {

// What each operand of a pattern is in a formula.
class Matched {
 public:
  // Returns the number of the operand that operand `i` of the pattern is; -1: it is a constant, or the pattern does not read it.
  int operand(int i) const;
  // Returns the constant that operand `i` of the pattern is.
  std::optional<float> constant(int i) const;

 private:
  friend std::optional<Matched> match(const Formula& pattern, const Formula& formula,
                                      std::initializer_list<int> constants);
  std::array<std::optional<FormulaStep>, Formula::kMostInputs> steps_{};
};

// Returns what the operands of `pattern` are if `formula` is that function of them; sums and products may have their
// operands the other way round. An operand of the pattern is the same one everywhere: one of the formula's operands, or for those in
// `constants` a constant. Nothing if it is not.
std::optional<Matched> match(const Formula& pattern, const Formula& formula,
                             std::initializer_list<int> constants = {});

}  // namespace dstrain
