#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/formula/formula.h"

namespace dstrain {
namespace {

// The slopes of a formula with respect to each of its steps, from the last one back.
class Slopes {
 public:
  explicit Slopes(const Formula& formula) : steps_(formula.steps()), slopes_(steps_.size()) {
    for (const FormulaStep& step : steps_) values_.push_back(value_of(step));
    slopes_.back() = Formula(1);
    for (size_t i = steps_.size(); i-- > 0;)
      if (slopes_[i]) pass_on(steps_[i], values_[i], *slopes_[i]);
  }

  std::optional<Formula> of_input(int number) const {
    std::optional<Formula> slope;
    for (size_t i = 0; i < steps_.size(); ++i)
      if (steps_[i].fn == Fn::input && steps_[i].a == number) slope = slopes_[i];
    return slope;
  }

 private:
  Formula value_of(const FormulaStep& step) const {
    switch (operands_of(step.fn)) {
      case 1:
        return Formula::of(step.fn, {values_[step.a]});
      case 2:
        return Formula::of(step.fn, {values_[step.a], values_[step.b]});
      case 3:
        return Formula::of(step.fn, {values_[step.a], values_[step.b], values_[step.c]});
      default:
        if (step.fn == Fn::inside) return Formula::inside(step.a);
        return step.fn == Fn::input ? Formula::input(step.a) : Formula(step.value);
    }
  }

  void add(uint8_t step, const Formula& slope) {
    if (values_[step].inputs() == 0) return;  // a constant
    std::optional<Formula>& sum = slopes_[step];
    sum = sum ? *sum + slope : slope;
  }

  // Adds to the slopes of what a step reads. y: its value; d: the slope of the formula with respect to it.
  void pass_on(const FormulaStep& step, const Formula& y, const Formula& d) {
    const Formula &a = values_[step.a], &b = values_[step.b];
    switch (step.fn) {
      case Fn::input:
      case Fn::inside:
      case Fn::constant:
      case Fn::less:
      case Fn::rounded_down:
      case Fn::rounded:
        return;
      case Fn::add:
        add(step.a, d);
        return add(step.b, d);
      case Fn::subtract:
        add(step.a, d);
        return add(step.b, -d);
      case Fn::multiply:
        add(step.a, d * b);
        return add(step.b, d * a);
      case Fn::divide:
        add(step.a, d / b);
        return add(step.b, -(d * y / b));
      case Fn::maximum:
        add(step.a, Formula::of(Fn::select, {less(b, a), d, 0}));
        return add(step.b, Formula::of(Fn::select, {less(b, a), 0, d}));
      case Fn::minimum:
        add(step.a, Formula::of(Fn::select, {less(a, b), d, 0}));
        return add(step.b, Formula::of(Fn::select, {less(a, b), 0, d}));
      case Fn::select:
        add(step.b, select(a, d, 0));
        return add(step.c, select(a, 0, d));
      case Fn::negate:
        return add(step.a, -d);
      case Fn::absolute:
        return add(step.a, select(less(a, 0), -d, select(less(0, a), d, 0)));
      case Fn::exponential:
        return add(step.a, d * y);
      case Fn::logarithm:
        return add(step.a, d / a);
      case Fn::square_root:
        return add(step.a, d * 0.5f / y);
      case Fn::tangent:
        return add(step.a, d * (1 - y * y));
      case Fn::sigmoid:
        return add(step.a, d * (y * (1 - y)));
      case Fn::sine:
        return add(step.a, d * cosine(a));
      case Fn::cosine:
        return add(step.a, -(d * sine(a)));
      case Fn::error_function:
        return add(step.a, d * (1.1283791670955126f * exponential(-(a * a))));  // 2 / sqrt(pi)
      case Fn::power:
        add(step.a, select(b, d * (b * power(a, b - 1)), 0));
        return add(step.b, select(a, d * (y * logarithm(a)),
                                  select(less(b, 0), d * (y * logarithm(a)), 0)));
      case Fn::remainder:
        add(step.a, d);
        return add(step.b, -(d * truncated(a / b)));
    }
  }

  std::span<const FormulaStep> steps_;
  std::vector<Formula> values_;
  std::vector<std::optional<Formula>> slopes_;
};

}  // namespace

std::optional<Formula> derivative(const Formula& formula, int number) {
  check(!formula.steps().empty(), "an empty formula has no derivative");
  return Slopes(formula).of_input(number);
}

}  // namespace dstrain
