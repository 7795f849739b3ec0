#include "runtime/ir/formula/match.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace dstrain {
namespace {

using Bindings = std::array<std::optional<FormulaStep>, Formula::kMostInputs>;
using Steps = std::span<const FormulaStep>;

bool commutes(Fn fn) {
  return fn == Fn::add || fn == Fn::multiply || fn == Fn::maximum || fn == Fn::minimum;
}

// Steps of the pattern and of the formula that are to be the same.
struct Pair {
  size_t pattern = 0, formula = 0;
};

class Matcher {
 public:
  Matcher(Steps pattern, Steps formula, std::initializer_list<int> constants)
      : pattern_(pattern), formula_(formula), constants_(constants) {}

  // Binds the pattern's operands so that all pairs are the same. Returns whether they can be.
  bool bind(std::vector<Pair> pairs, Bindings& bindings) const {
    if (pairs.empty()) return true;
    const FormulaStep &want = pattern_[pairs.back().pattern],
                      &have = formula_[pairs.back().formula];
    pairs.pop_back();
    if (want.fn == Fn::input) {
      const bool constant = std::ranges::find(constants_, int{want.a}) != constants_.end();
      if (have.fn != (constant ? Fn::constant : Fn::input)) return false;
      std::optional<FormulaStep>& bound = bindings[want.a];
      if (bound) return *bound == have && bind(std::move(pairs), bindings);
      bound = have;
      if (bind(std::move(pairs), bindings)) return true;
      bound.reset();
      return false;
    }
    if (want.fn != have.fn || want.fn == Fn::inside) return false;
    if (want.fn == Fn::constant)
      return want.value == have.value && bind(std::move(pairs), bindings);
    const auto with = [&](size_t a, size_t b) {
      std::vector<Pair> more = pairs;
      const Pair operands[] = {{want.a, a}, {want.b, b}, {want.c, have.c}};
      more.insert(more.end(), operands, operands + operands_of(want.fn));
      return bind(std::move(more), bindings);
    };
    return with(have.a, have.b) || (commutes(want.fn) && with(have.b, have.a));
  }

 private:
  Steps pattern_, formula_;
  std::initializer_list<int> constants_;
};

}  // namespace

int Matched::operand(int i) const {
  const std::optional<FormulaStep>& step = steps_[static_cast<size_t>(i)];
  return step && step->fn == Fn::input ? step->a : -1;
}

std::optional<float> Matched::constant(int i) const {
  const std::optional<FormulaStep>& step = steps_[static_cast<size_t>(i)];
  if (!step || step->fn != Fn::constant) return std::nullopt;
  return step->value;
}

std::optional<Matched> match(const Formula& pattern, const Formula& formula,
                             std::initializer_list<int> constants) {
  if (pattern.steps().empty() || formula.steps().empty()) return std::nullopt;
  Matched matched;
  const Matcher matcher(pattern.steps(), formula.steps(), constants);
  if (!matcher.bind({{pattern.steps().size() - 1, formula.steps().size() - 1}}, matched.steps_))
    return std::nullopt;
  return matched;
}

}  // namespace dstrain
