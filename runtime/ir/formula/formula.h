// Formula: what the op `map` computes for each element of its result, as a small expression over the elements of its
// operands. Formulas are values, which operators and functions combine:
//   const Formula x = Formula::input(0);
//   const Formula capped = 30 * tanh(x / 30);
// Everything is computed in f32, and the result is rounded once to its dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dstrain {

// The functions of a formula. NaN and infinity go through them as IEEE has it.
enum class Fn : uint8_t {
  input,  // element of operand `a`
  inside,  // 1 where operand `a` has an element, 0 where its view is outside (runtime/ir/views/view.h)
  constant,  // `value`
  add,
  subtract,
  multiply,
  divide,
  maximum,  // NaN where one of the two is
  minimum,
  less,    // 1 where a < b, else 0
  select,  // b where a is not 0, else c
  negate,
  absolute,
  exponential,
  logarithm,
  square_root,
  tangent,  // hyperbolic
  sigmoid,
  sine,
  cosine,
  error_function,  // erf
  rounded_down,    // floor
  rounded,         // to the nearest integer; halves to the even one
  power,           // a to the power of b, as C's pow
  remainder,       // a - b * (a / b rounded toward 0), exactly and with the sign of a: C's fmod
};

// One step: a function of the results of earlier steps a, b and c.
struct FormulaStep {
  Fn fn{};
  uint8_t a = 0, b = 0, c = 0;
  float value = 0;
  bool operator==(const FormulaStep&) const = default;
};

// Returns of how many earlier steps a function is.
int operands_of(Fn fn);
// Returns whether a step is of an operand.
constexpr bool is_operand(Fn fn) {
  return fn == Fn::input || fn == Fn::inside;
}

class Formula {
 public:
  static constexpr size_t kMostSteps = 64, kMostInputs = 7;

  // An empty formula, which computes nothing.
  Formula() = default;
  // A constant: formulas are written with numbers.
  Formula(float constant);
  // Returns the element of operand `number`. Throws InternalError at more than kMostInputs operands.
  static Formula input(int number);
  // Returns 1 where operand `number` has an element, else 0.
  static Formula inside(int number);
  // Returns a function of formulas, whose steps they share where they have the same. A function of constants is a constant.
  // Throws InternalError at more than kMostSteps steps.
  static Formula of(Fn fn, std::initializer_list<Formula> operands);

  // Its steps in order; the last one is the result.
  std::span<const FormulaStep> steps() const {
    return steps_ ? *steps_ : std::span<const FormulaStep>();
  }
  // Returns its constant, if that is all.
  std::optional<float> constant() const;
  // Returns whether the formula reads operand `number`, or asks whether it has an element.
  bool reads(int number) const;
  // Returns the number of operands: 1 more than the largest number of one that is read.
  int inputs() const;
  // Returns whether its derivative jumps somewhere.
  bool has_kink() const;
  // Returns the formula with operand i called numbers[i].
  Formula renumbered(std::span<const int> numbers) const;
  // Returns its value in double precision. `inside`: 1 for each operand that has an element, else 0; none: all have.
  double value(std::span<const double> inputs, std::span<const double> inside = {}) const;

  bool operator==(const Formula& other) const;

 private:
  using Steps = std::vector<FormulaStep>;
  explicit Formula(Steps steps);
  static Formula of_operand(Fn fn, int number);

  std::shared_ptr<const Steps> steps_;
};

inline Formula operator+(const Formula& a, const Formula& b) {
  return Formula::of(Fn::add, {a, b});
}
inline Formula operator-(const Formula& a, const Formula& b) {
  return Formula::of(Fn::subtract, {a, b});
}
inline Formula operator*(const Formula& a, const Formula& b) {
  return Formula::of(Fn::multiply, {a, b});
}
inline Formula operator/(const Formula& a, const Formula& b) {
  return Formula::of(Fn::divide, {a, b});
}
inline Formula operator-(const Formula& a) {
  return Formula::of(Fn::negate, {a});
}
inline Formula maximum(const Formula& a, const Formula& b) {
  return Formula::of(Fn::maximum, {a, b});
}
inline Formula minimum(const Formula& a, const Formula& b) {
  return Formula::of(Fn::minimum, {a, b});
}
inline Formula less(const Formula& a, const Formula& b) {
  return Formula::of(Fn::less, {a, b});
}
inline Formula select(const Formula& condition, const Formula& yes, const Formula& no) {
  return Formula::of(Fn::select, {condition, yes, no});
}
inline Formula absolute(const Formula& a) {
  return Formula::of(Fn::absolute, {a});
}
inline Formula exponential(const Formula& a) {
  return Formula::of(Fn::exponential, {a});
}
inline Formula logarithm(const Formula& a) {
  return Formula::of(Fn::logarithm, {a});
}
inline Formula square_root(const Formula& a) {
  return Formula::of(Fn::square_root, {a});
}
inline Formula tangent(const Formula& a) {
  return Formula::of(Fn::tangent, {a});
}
inline Formula sigmoid(const Formula& a) {
  return Formula::of(Fn::sigmoid, {a});
}
inline Formula sine(const Formula& a) {
  return Formula::of(Fn::sine, {a});
}
inline Formula cosine(const Formula& a) {
  return Formula::of(Fn::cosine, {a});
}

inline Formula error_function(const Formula& a) {
  return Formula::of(Fn::error_function, {a});
}
inline Formula rounded_down(const Formula& a) {
  return Formula::of(Fn::rounded_down, {a});
}
inline Formula rounded(const Formula& a) {
  return Formula::of(Fn::rounded, {a});
}
inline Formula power(const Formula& a, const Formula& b) {
  return Formula::of(Fn::power, {a, b});
}
inline Formula remainder(const Formula& a, const Formula& b) {
  return Formula::of(Fn::remainder, {a, b});
}

// Returns the derivative of a formula with respect to operand `number`. Nothing where the formula does not depend on the
// operand. Where a function has a kink the derivative is that of one side: of maximum(a, b) at a = b all of b's, of
// absolute(0) it is 0. What is rounded has the derivative 0 everywhere. power(a, b) has the conventions of PyTorch: by a it is 0
// where b is 0, and by b where a is 0 and b is not negative.
std::optional<Formula> derivative(const Formula& formula, int number);

// Returns a number rounded toward 0.
Formula truncated(const Formula& x);

// relu, gelu in its tanh form and exactly, and silu, as the ops `activation` and `gated` have them.
Formula relu(const Formula& x);
Formula gelu(const Formula& x);
Formula gelu_erf(const Formula& x);
Formula silu(const Formula& x);

}  // namespace dstrain
