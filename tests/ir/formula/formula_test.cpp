// Formulas: their steps, values and derivatives.
#include "runtime/ir/formula/formula.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "runtime/core/error.h"
#include "runtime/ir/views/broadcast.h"

namespace dstrain {
namespace {

using Catch::Contains;

const Formula kX = Formula::input(0), kY = Formula::input(1), kZ = Formula::input(2);

// Formulas of up to three operands, each with what it computes. Their kinks are away from the points of the tests.
struct Known {
  const char* name;
  Formula formula;
  std::function<double(double, double, double)> value;
};

const Known kKnown[] = {
    {"sum", kX + kY* kZ - 3, [](double a, double b, double c) { return a + b * c - 3; }},
    {"quotient", (kX - kY) / (kZ * kZ + 1),
     [](double a, double b, double c) { return (a - b) / (c * c + 1); }},
    {"limits", minimum(maximum(kX, kY), 2 * kZ),
     [](double a, double b, double c) { return std::min(std::max(a, b), 2 * c); }},
    {"choice", select(less(kX, kY), kX* kZ, kY / 2),
     [](double a, double b, double c) { return a < b ? a * c : b / 2; }},
    {"softplus", logarithm(1 + exponential(kX)),
     [](double a, double, double) { return std::log1p(std::exp(a)); }},
    {"norm", kX / square_root(kX* kX + kY * kY + kZ * kZ + 1e-3f),
     [](double a, double b, double c) {
       return a / std::sqrt(a * a + b * b + c * c + static_cast<double>(1e-3f));
     }},
    {"capped", 30 * tangent(kX / 30),
     [](double a, double, double) { return 30 * std::tanh(a / 30); }},
    {"gate", silu(kX) * kY, [](double a, double b, double) { return a / (1 + std::exp(-a)) * b; }},
    {"waves", sine(kX) * cosine(kY * 2) - absolute(kZ),
     [](double a, double b, double c) { return std::sin(a) * std::cos(2 * b) - std::abs(c); }},
    {"gelu", gelu(kX),
     [](double a, double, double) {
       return 0.5 * a *
              (1 + std::tanh(static_cast<double>(0.7978845608028654f) *
                             (a + static_cast<double>(0.044715f) * a * a * a)));
     }},
    {"exact gelu", gelu_erf(kX),
     [](double a, double, double) {
       return 0.5 * a * (1 + std::erf(static_cast<double>(0.7071067811865475f) * a));
     }},
    {"power", power(kX* kX + 0.5f, kY),
     [](double a, double b, double) { return std::pow(a * a + 0.5, b); }},
    {"remainder", remainder(kX, kZ) + rounded(kX + 0.3f) * kX,
     [](double a, double, double c) {
       return std::fmod(a, c) + std::nearbyint(a + static_cast<double>(0.3f)) * a;
     }},
    {"rounded", kX* rounded_down(kX - 0.2f) + truncated(kZ + 0.3f) * kZ,
     [](double a, double, double c) {
       return a * std::floor(a - static_cast<double>(0.2f)) +
              std::trunc(c + static_cast<double>(0.3f)) * c;
     }},
};
constexpr std::array<double, 3> kPoints[] = {
    {0.3, -1.2, 2.5}, {-2.25, 0.75, 0.4}, {1.5, 1.25, -0.6}, {-0.1, -3, 1}};

TEST_CASE("a formula has the value of what it is written as") {
  for (const Known& known : kKnown)
    for (const auto& at : kPoints) {
      INFO(known.name);
      CHECK(known.formula.value(at) == Approx(known.value(at[0], at[1], at[2])).epsilon(1e-12));
    }
}

TEST_CASE("a derivative is the limit of differences") {
  for (const Known& known : kKnown)
    for (int number = 0; number < 3; ++number) {
      INFO(known.name << " by operand " << number);
      const std::optional<Formula> slope = derivative(known.formula, number);
      REQUIRE(slope.has_value() == known.formula.reads(number));
      if (!slope) continue;
      for (auto at : kPoints) {
        constexpr double kStep = 1e-6;
        const double middle = at[static_cast<size_t>(number)];
        const double here = slope->value(at);
        at[static_cast<size_t>(number)] = middle + kStep;
        const double above = known.formula.value(at);
        at[static_cast<size_t>(number)] = middle - kStep;
        const double below = known.formula.value(at);
        CHECK(here == Approx((above - below) / (2 * kStep)).epsilon(1e-6).margin(1e-8));
      }
    }
}

TEST_CASE("at a kink the derivative is that of one side") {
  const double zero[] = {0, 0, 0};
  CHECK(derivative(relu(kX), 0)->value(zero) == 0);
  CHECK(derivative(absolute(kX), 0)->value(zero) == 0);
  CHECK(derivative(maximum(kX, kY), 0)->value(zero) == 0);
  CHECK(derivative(maximum(kX, kY), 1)->value(zero) == 1);
}

TEST_CASE("at 0 a power has the derivatives that PyTorch gives it") {
  const Formula y = power(kX, kY);
  const auto slope = [&](int number, double x, double exponent) {
    return derivative(y, number)->value(std::array{x, exponent});
  };
  CHECK(slope(0, 0, 0) == 0);
  CHECK(slope(0, 3, 0) == 0);
  CHECK(slope(0, 0, 1) == 1);
  CHECK(slope(0, 0, 2) == 0);
  CHECK(std::isinf(slope(0, 0, 0.5)));
  CHECK(slope(0, -2, 3) == 12);
  CHECK(slope(1, 0, 2) == 0);
  CHECK(slope(1, 0, 0) == 0);
  CHECK(slope(1, 0, -1) == -HUGE_VAL);
  CHECK(std::isnan(slope(1, -2, 2)));
  CHECK(power(kX, 3).value(std::array{-2.0}) == -8);
  CHECK(std::isnan(power(kX, 0.5f).value(std::array{-2.0})));
}

TEST_CASE(
    "halves are rounded to the even number, and a remainder has the sign of what is divided") {
  const auto value = [](const Formula& f, double a, double b = 1) {
    return f.value(std::array{a, b});
  };
  CHECK(value(rounded(kX), 0.5) == 0);
  CHECK(value(rounded(kX), 1.5) == 2);
  CHECK(value(rounded(kX), -2.5) == -2);
  CHECK(value(rounded_down(kX), -0.5) == -1);
  CHECK(value(truncated(kX), -1.5) == -1);
  CHECK(value(remainder(kX, kY), -7, 3) == -1);
  CHECK(value(remainder(kX, kY), 7, -3) == 1);
  CHECK(std::isnan(value(remainder(kX, kY), 7, 0)));
  CHECK(derivative(remainder(kX, kY), 1)->value(std::array{-7.0, 3.0}) == 2);
  CHECK_FALSE(derivative(rounded(kX) * kY, 0));
}

TEST_CASE("what formulas have in common is one step, and what is constant is computed") {
  const Formula e = exponential(kX);
  CHECK((e * e + e).steps().size() == 4);
  CHECK_FALSE(gelu(kX).has_kink());
  CHECK(relu(kX).has_kink());
  CHECK((2 * Formula(3)).constant() == 6.0f);
  CHECK(kX * 1 == kX);
  CHECK(kX / 1 == kX);
  CHECK(kX - 0 == kX);
  CHECK_FALSE(kX + 0 == kX);  // of -0 it is 0
  CHECK((kX + kY).inputs() == 2);
  CHECK(kZ.inputs() == 3);
  CHECK_FALSE(kZ.reads(0));
  const std::array<int, 3> numbers{2, 0, 1};
  CHECK((kX - kY).renumbered(numbers) == kZ - kX);
}

TEST_CASE("a formula that is too long, and one of too many operands, are refused") {
  Formula sum = kX;
  CHECK_THROWS_WITH(
      [&] {
        for (int i = 1; i < 100; ++i) sum = sum * kX + static_cast<float>(i);
      }(),
      Contains("more than 64 steps"));
  CHECK_THROWS_WITH(Formula::input(7), Contains("at most 7"));
  CHECK_THROWS_WITH(Formula::of(Fn::add, {kX}), Contains("a function of 2 operands has 1"));
}

TEST_CASE("operands are broadcast over rows, columns or both") {
  const Shape result{6, 4};
  CHECK(broadcast_of(result, {6, 4}) == Broadcast::none);
  CHECK(broadcast_of(result, {2, 3, 4}) == Broadcast::none);
  CHECK(broadcast_of(result, {4}) == Broadcast::columns);
  CHECK(broadcast_of(result, {1, 4}) == Broadcast::columns);
  CHECK(broadcast_of(result, {6, 1}) == Broadcast::rows);
  CHECK(broadcast_of(result, {1}) == Broadcast::one);
  CHECK(broadcast_of(result, {6}) == Broadcast::impossible);
  CHECK(broadcast_of({4, 4}, {4}) == Broadcast::columns);
  CHECK(broadcast_of({4, 4}, {4, 1}) == Broadcast::rows);
}

}  // namespace
}  // namespace dstrain
