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

// Requires |got - expected| <= absolute + relative * |expected| for every element, and NaN exactly where NaN is
// expected.
inline void require_close(const std::string& what, const std::vector<double>& got,
                          const std::vector<double>& expected, Tolerance tolerance) {
  INFO(what);
  REQUIRE(got.size() == expected.size());
  size_t bad = 0, worst = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    const double error = std::abs(got[i] - expected[i]);
    if (error <= allowed) continue;
    ++bad;
    const double excess = std::isfinite(error) ? error / allowed : HUGE_VAL;
    if (bad == 1 || excess > worst_excess) worst_excess = excess, worst = i;
  }
  if (bad > 0)
    FAIL(
        fmt::format("{} of {} elements are off; worst [{}]: got {:.9g}, expected {:.9g}, {:.3g} "
                    "times the tolerance (relative {:.3g}, absolute {:.3g})",
                    bad, got.size(), worst, got[worst], expected[worst], worst_excess,
                    tolerance.relative, tolerance.absolute));
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
