#include "runtime/ir/formula/formula.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

double apply(Fn fn, double a, double b, double c) {
  switch (fn) {
    case Fn::add:
      return a + b;
    case Fn::subtract:
      return a - b;
    case Fn::multiply:
      return a * b;
    case Fn::divide:
      return a / b;
    case Fn::maximum:
      return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case Fn::minimum:
      return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    case Fn::less:
      return a < b ? 1 : 0;
    case Fn::select:
      return a != 0 ? b : c;
    case Fn::negate:
      return -a;
    case Fn::absolute:
      return std::abs(a);
    case Fn::exponential:
      return std::exp(a);
    case Fn::logarithm:
      return std::log(a);
    case Fn::square_root:
      return std::sqrt(a);
    case Fn::tangent:
      return std::tanh(a);
    case Fn::sigmoid:
      return 1 / (1 + std::exp(-a));
    case Fn::sine:
      return std::sin(a);
    case Fn::cosine:
      return std::cos(a);
    case Fn::error_function:
      return std::erf(a);
    case Fn::rounded_down:
      return std::floor(a);
    case Fn::rounded:
      return std::nearbyint(a);
    case Fn::power:
      return std::pow(a, b);
    case Fn::remainder:
      return std::fmod(a, b);
    case Fn::input:
    case Fn::inside:
    case Fn::constant:
      break;
  }
  throw InternalError("a step of a formula that has no operands is applied");
}

// Returns what a function of two operands is where one of them makes it the other one, bit for bit.
std::optional<Formula> simpler(Fn fn, std::span<const Formula> operands) {
  const auto is = [&](size_t i, float value) { return operands[i].constant() == value; };
  if (fn == Fn::multiply && is(0, 1)) return operands[1];
  if ((fn == Fn::multiply || fn == Fn::divide) && is(1, 1)) return operands[0];
  if (fn == Fn::subtract && is(1, 0) && !std::signbit(*operands[1].constant())) return operands[0];
  return std::nullopt;
}

}  // namespace

int operands_of(Fn fn) {
  switch (fn) {
    case Fn::input:
    case Fn::inside:
    case Fn::constant:
      return 0;
    case Fn::select:
      return 3;
    case Fn::add:
    case Fn::subtract:
    case Fn::multiply:
    case Fn::divide:
    case Fn::maximum:
    case Fn::minimum:
    case Fn::less:
    case Fn::power:
    case Fn::remainder:
      return 2;
    default:
      return 1;
  }
}

Formula::Formula(Steps steps) : steps_(std::make_shared<const Steps>(std::move(steps))) {}

Formula::Formula(float constant) : Formula(Steps{{.fn = Fn::constant, .value = constant}}) {}

Formula Formula::of_operand(Fn fn, int number) {
  check(0 <= number && number < static_cast<int>(kMostInputs),
        "operand {} of a formula, which has at most {}", number, kMostInputs);
  return Formula(Steps{{.fn = fn, .a = static_cast<uint8_t>(number)}});
}

Formula Formula::input(int number) {
  return of_operand(Fn::input, number);
}

Formula Formula::inside(int number) {
  return of_operand(Fn::inside, number);
}

Formula Formula::of(Fn fn, std::initializer_list<Formula> list) {
  const std::span<const Formula> operands(list.begin(), list.size());
  check(operands_of(fn) == static_cast<int>(operands.size()), "a function of {} operands has {}",
        operands_of(fn), operands.size());
  if (std::optional<Formula> same = simpler(fn, operands)) return *same;
  Steps steps;
  uint8_t at[3] = {};
  double values[3] = {};
  bool known = true;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::optional<float> constant = operands[i].constant();
    known = known && constant;
    values[i] = static_cast<double>(constant.value_or(0));
    std::vector<uint8_t> moved;  // where each step of the operand is now
    for (FormulaStep step : operands[i].steps()) {
      const int count = operands_of(step.fn);
      if (count > 0) step.a = moved[step.a];
      if (count > 1) step.b = moved[step.b];
      if (count > 2) step.c = moved[step.c];
      const auto same = std::ranges::find(steps, step);
      moved.push_back(static_cast<uint8_t>(same - steps.begin()));
      if (same == steps.end()) steps.push_back(step);
    }
    check(!moved.empty(), "a function of an empty formula");
    at[i] = moved.back();
  }
  if (known) return static_cast<float>(apply(fn, values[0], values[1], values[2]));
  steps.push_back({.fn = fn, .a = at[0], .b = at[1], .c = at[2]});
  check(steps.size() <= kMostSteps, "a formula has more than {} steps: divide it among maps",
        kMostSteps);
  return Formula(std::move(steps));
}

std::optional<float> Formula::constant() const {
  if (steps().size() != 1 || steps()[0].fn != Fn::constant) return std::nullopt;
  return steps()[0].value;
}

bool Formula::reads(int number) const {
  return std::ranges::any_of(steps(), [number](const FormulaStep& step) {
    return is_operand(step.fn) && step.a == number;
  });
}

int Formula::inputs() const {
  int count = 0;
  for (const FormulaStep& step : steps())
    if (is_operand(step.fn)) count = std::max(count, step.a + 1);
  return count;
}

bool Formula::has_kink() const {
  constexpr Fn kKinks[] = {Fn::maximum,  Fn::minimum,      Fn::less,    Fn::select,
                           Fn::absolute, Fn::rounded_down, Fn::rounded, Fn::remainder};
  return std::ranges::any_of(steps(), [&](const FormulaStep& step) {
    return std::ranges::find(kKinks, step.fn) != std::end(kKinks);
  });
}

Formula Formula::renumbered(std::span<const int> numbers) const {
  Steps steps(this->steps().begin(), this->steps().end());
  for (FormulaStep& step : steps)
    if (is_operand(step.fn)) step.a = static_cast<uint8_t>(numbers[step.a]);
  return Formula(std::move(steps));
}

double Formula::value(std::span<const double> inputs, std::span<const double> inside) const {
  std::vector<double> results;
  for (const FormulaStep& step : steps()) {
    if (step.fn == Fn::input)
      results.push_back(inputs[step.a]);
    else if (step.fn == Fn::inside)
      results.push_back(inside.empty() ? 1 : inside[step.a]);
    else if (step.fn == Fn::constant)
      results.push_back(static_cast<double>(step.value));
    else
      results.push_back(apply(step.fn, results[step.a], results[step.b], results[step.c]));
  }
  check(!results.empty(), "an empty formula has no value");
  return results.back();
}

bool Formula::operator==(const Formula& other) const {
  return std::ranges::equal(steps(), other.steps());
}

Formula truncated(const Formula& x) {
  return select(less(x, 0), -rounded_down(-x), rounded_down(x));
}

Formula relu(const Formula& x) {
  return maximum(x, 0);
}

Formula gelu(const Formula& x) {
  constexpr float kRoot = 0.7978845608028654f, kCubic = 0.044715f;  // sqrt(2 / pi)
  return 0.5f * x * (1 + tangent(kRoot * (x + kCubic * (x * x * x))));
}

Formula gelu_erf(const Formula& x) {
  constexpr float kRoot = 0.7071067811865475f;  // 1 / sqrt(2)
  return 0.5f * x * (1 + error_function(kRoot * x));
}

Formula silu(const Formula& x) {
  return x * sigmoid(x);
}

}  // namespace dstrain
