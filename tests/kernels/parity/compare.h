// Comparison of results with expected values; a failure names the worst or the first wrong element.
#pragma once

#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/kernels/parity/guarded_operand.h"

namespace dstrain::parity {

// The largest error that a comparison accepts: absolute + relative * |expected| for each element.
struct Tolerance {
  double relative = 0, absolute = 0;
};

// Returns the tolerance for one rounding to `dtype`; for f32, a few roundings of intermediate values.
inline Tolerance tolerance_of(DType dtype, double scale = 1) {
  switch (dtype) {
    case DType::bf16:
      return {0x1p-8, 1e-6 * scale};
    case DType::f16:
      return {0x1p-11 + 1e-6, 0x1p-24 + 1e-6 * scale};
    default:
      return {2e-6, 1e-6 * scale};
  }
}

// Returns the largest error of rounding a value to `dtype`: its unit roundoff, and half of the smallest number, or for
// types with the exponents of f32 a number below which exponentials may be 0.
inline Tolerance rounding_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {0x1p-8, 0x1p-100};
    case DType::f16:
      return {0x1p-11, 0x1p-25};
    default:
      return {0x1p-24, 0x1p-100};
  }
}

// How many elements are further from what is expected than allowed, and the worst: its index, and its error over what
// is allowed.
struct Excess {
  size_t bad = 0, worst = 0;
  double ratio = 0;
};

// Compares each element with `expected` and `allowed`, the largest error that it may have. A NaN is right exactly where
// one is expected.
inline Excess excess_of(const std::vector<double>& got, const std::vector<double>& expected,
                        const std::vector<double>& allowed) {
  REQUIRE(got.size() == expected.size());
  REQUIRE(allowed.size() == expected.size());
  Excess excess;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    const double error = std::abs(got[i] - expected[i]);
    double ratio = error / allowed[i];
    if (!std::isfinite(ratio)) ratio = HUGE_VAL;
    if (ratio > 1) ++excess.bad;
    if (ratio > excess.ratio) excess.ratio = ratio, excess.worst = i;
  }
  return excess;
}

// Requires |got - expected| <= allowed for every element, and NaN exactly where NaN is expected.
inline void require_within(const std::string& what, const std::vector<double>& got,
                           const std::vector<double>& expected,
                           const std::vector<double>& allowed) {
  INFO(what);
  const auto [bad, at, ratio] = excess_of(got, expected, allowed);
  if (bad > 0)
    FAIL(
        fmt::format("{} of {} elements are off; worst [{}]: got {:.9g}, expected {:.9g}, {:.3g} "
                    "times the tolerance {:.3g}",
                    bad, got.size(), at, got[at], expected[at], ratio, allowed[at]));
}

// The same with |got - expected| <= absolute + relative * |expected|.
inline void require_close(const std::string& what, const std::vector<double>& got,
                          const std::vector<double>& expected, Tolerance tolerance) {
  std::vector<double> allowed(expected.size());
  for (size_t i = 0; i < allowed.size(); ++i)
    allowed[i] = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
  require_within(what, got, expected, allowed);
}

// |got - expected| / |expected|, Euclidean norms.
inline double relative_norm_error(const std::vector<double>& got,
                                  const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-300);
}

// Requires equal bytes and names the first element that differs.
inline void require_same_bits(const std::string& what, const Guarded& a, const Guarded& b) {
  INFO(what);
  REQUIRE(a.shape() == b.shape());
  REQUIRE(a.dtype() == b.dtype());
  if (a.raw() == b.raw()) return;
  const std::vector<double> x = a.values(), y = b.values();
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) * size_of(a.dtype());
    if (std::memcmp(static_cast<char*>(a.data()) + at, static_cast<char*>(b.data()) + at,
                    static_cast<size_t>(size_of(a.dtype()))) != 0)
      FAIL(fmt::format("bits differ first at [{}]: {:.9g} and {:.9g}", i, x[i], y[i]));
  }
}

// Returns d/de f(x + e * direction) at e = 0 by central differences.
template <class F>
double directional_derivative(const F& f, const std::vector<double>& x,
                              const std::vector<double>& direction, double step = 1e-5) {
  std::vector<double> up = x, down = x;
  for (size_t i = 0; i < x.size(); ++i)
    up[i] += step * direction[i], down[i] -= step * direction[i];
  return (f(up) - f(down)) / (2 * step);
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace dstrain::parity
