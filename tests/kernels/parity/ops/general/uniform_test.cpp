// uniform against its rule (runtime/core/philox.h), and what it draws against the uniform distribution.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/core/philox.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

StepState state_of(uint64_t seed, int64_t first_sample) {
  StepState state;
  state.seed = seed;
  state.first_sample = first_sample;
  return state;
}

// Returns what (outer, samples, inner) elements are.
std::vector<double> drawn(int64_t outer, const UniformAttrs& attrs, const StepState& state,
                          int64_t sample_offset) {
  const PhiloxKey key = stream_key(state.seed, kUniformStream + attrs.site);
  std::vector<double> values;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t s = 0; s < attrs.samples; ++s)
      for (int64_t i = 0; i < attrs.inner; ++i)
        values.push_back(static_cast<double>(
            uniform_value(key, static_cast<uint64_t>(state.first_sample + sample_offset + s),
                          static_cast<uint64_t>(o * attrs.inner + i))));
  return values;
}

// Returns a large draw.
std::vector<double> many(const UniformAttrs& attrs, const StepState& state) {
  return run_at_offset({.op = OpKind::uniform, .attrs = attrs, .state = &state}, {},
                       {{Shape{attrs.samples, attrs.inner}, DType::f32}}, 0)[0]
      .values();
}

TEST_CASE("uniform draws exactly the values of the scalar rule") {
  struct Sizes {
    int64_t outer, samples, inner;
  };
  for (const Sizes& s : {Sizes{1, 1, 1},
                         {1, 3, 1},
                         {1, 1, 257},
                         {1, 4, 1000},
                         {5, 3, 1},
                         {7, 2, 6},
                         {3, 2, 64},
                         {2, 3, 4},
                         {4, 1, 131},
                         {1, 2, 9001}})
    // The sample's number uses more than 32 bits of the Philox counter.
    for (const int64_t first : {int64_t{5}, int64_t{0x1'0000'0003}}) {
      INFO(s.outer << " x " << s.samples << " x " << s.inner);
      const StepState state = state_of(0x123456789abcdefull, first);
      const UniformAttrs attrs{.site = 9, .samples = s.samples, .inner = s.inner};
      const Call call{.op = OpKind::uniform, .attrs = attrs, .state = &state, .sample_offset = 7};
      const auto y = run_everywhere(call, {}, {{Shape{s.outer, s.samples, s.inner}, DType::f32}});
      CHECK(y[0].values() == drawn(s.outer, attrs, state, 7));
    }
}

TEST_CASE("what is drawn is uniform on [0, 1), and independent of its neighbours") {
  const UniformAttrs attrs{.site = 2, .samples = 8, .inner = 1 << 15};
  const std::vector<double> x = many(attrs, state_of(3, 100));
  const auto n = static_cast<double>(x.size());  // 2^18
  double mean = 0, square = 0, neighbours = 0, samples = 0;
  std::array<int, 64> histogram{};
  for (size_t i = 0; i < x.size(); ++i) {
    CHECK_FALSE((x[i] < 0 || x[i] >= 1));
    mean += x[i] / n;
    square += x[i] * x[i] / n;
    neighbours += x[i] * x[(i + 1) % x.size()] / n;
    samples += x[i] * x[(i + static_cast<size_t>(attrs.inner)) % x.size()] / n;
    ++histogram[static_cast<size_t>(x[i] * 64)];
  }
  // Five standard deviations of each: 0.29, 0.30 and 0.22 over 2^9.
  CHECK(mean == Approx(0.5).margin(0.0029));
  CHECK(square == Approx(1.0 / 3).margin(0.003));
  CHECK(neighbours == Approx(0.25).margin(0.0022));
  CHECK(samples == Approx(0.25).margin(0.0022));
  double chi_square = 0;
  for (const int count : histogram) chi_square += std::pow(count - n / 64, 2) / (n / 64);
  CHECK(chi_square > 25);  // of 63 degrees of freedom
  CHECK(chi_square < 120);
  CHECK(*std::ranges::max_element(x) > 0.9999);
  CHECK(*std::ranges::min_element(x) < 0.0001);
}

TEST_CASE("another site, seed or sample draws other values, and another layout the same") {
  const UniformAttrs attrs{.site = 1, .samples = 2, .inner = 40};
  const std::vector<double> base = many(attrs, state_of(1, 1));
  CHECK(base == many(attrs, state_of(1, 1)));
  CHECK(base != many({.site = 2, .samples = 2, .inner = 40}, state_of(1, 1)));
  CHECK(base != many(attrs, state_of(2, 1)));
  CHECK(base != many(attrs, state_of(1, 3)));
  const std::vector<double> second = many({.site = 1, .samples = 1, .inner = 40}, state_of(1, 2));
  CHECK(std::equal(second.begin(), second.end(), base.begin() + 40));
}

}  // namespace
}  // namespace dstrain::parity
