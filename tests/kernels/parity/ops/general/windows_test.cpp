// Windows, convolutions and their gradients against their definitions in double precision.
#include <array>
#include <cmath>

#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/general/random_walk.h"

namespace dstrain::parity {
namespace windows {
namespace {

WindowAttrs random_windows(Draw& draw) {
  WindowAttrs attrs{.planes = draw(1, 4),
                    .samples = draw.once_in(2) ? 1 : draw(1, 5),
                    .channels = draw.once_in(2) ? 1 : draw(1, 40),
                    .outside = draw.once_in(2) ? 0.0f : -3.0f};
  for (size_t i = static_cast<size_t>(draw(0, 2)); i < 3; ++i) {
    WindowAttrs::Dimension& d = attrs.dimensions[i];
    d = {.size = draw(1, 9),
         .kernel = draw(1, 3),
         .stride = draw(1, 3),
         .padding = draw(0, 2),
         .dilation = draw(1, 2)};
    d.out = std::max<int64_t>(
        1, (d.size + 2 * d.padding - d.dilation * (d.kernel - 1) - 1) / d.stride + 1);
  }
  return attrs;
}

// Returns the position that a window has at a place; -1: it is outside.
int64_t position_of(const WindowAttrs& w, int64_t window, int64_t place) {
  const auto& [d0, d1, d2] = w.dimensions;
  const std::array at{d0.element(window / d2.out / d1.out, place / d2.kernel / d1.kernel),
                      d1.element(window / d2.out % d1.out, place / d2.kernel % d1.kernel),
                      d2.element(window % d2.out, place % d2.kernel)};
  if (at[0] < 0 || at[1] < 0 || at[2] < 0) return -1;
  return (at[0] * d1.size + at[1]) * d2.size + at[2];
}

// A convolution of random sizes, the operands of it and its gradients, and what these are.
struct Case {
  ConvolutionAttrs attrs{};
  Operand x{}, weight{}, d_y{};
  std::vector<double> y{}, d_x{}, d_weight{};

  Case(Draw& draw, DType dtype) {
    attrs.windows = random_windows(draw);
    WindowAttrs& w = attrs.windows;
    w.planes = 1;
    w.outside = 0;
    const bool wide = draw.once_in(2);
    w.samples = draw(1, wide ? 30 : 4);
    w.channels = draw(1, wide ? 40 : 7);
    attrs.outputs = draw(1, wide ? 70 : 7);
    // Pairs are multiplied at once on some processors.
    if (draw.once_in(2)) {
      w.channels += w.channels % 2;
      attrs.outputs += attrs.outputs % 2;
    }
    const auto seed = static_cast<uint64_t>(draw(1, 1 << 20));
    x = random_operand(attrs.inputs(), dtype, seed + 1);
    weight = random_operand(attrs.weights(), dtype, seed + 2);
    d_y = random_operand(attrs.results(), dtype, seed + 3);
    y.assign(d_y.values.size(), 0);
    d_x.assign(x.values.size(), 0);
    d_weight.assign(weight.values.size(), 0);
    for (int64_t window = 0; window < w.windows(); ++window)
      for (int64_t place = 0; place < w.kernel(); ++place)
        if (const int64_t position = position_of(w, window, place); position >= 0)
          add(window, place, position);
  }

 private:
  void add(int64_t window, int64_t place, int64_t position) {
    const WindowAttrs& w = attrs.windows;
    for (int64_t sample = 0; sample < w.samples; ++sample)
      for (int64_t output = 0; output < attrs.outputs; ++output)
        for (int64_t channel = 0; channel < w.channels; ++channel) {
          const auto of_x =
              static_cast<size_t>((position * w.samples + sample) * w.channels + channel);
          const auto of_y =
              static_cast<size_t>((window * w.samples + sample) * attrs.outputs + output);
          const auto of_weight =
              static_cast<size_t>((output * w.channels + channel) * w.kernel() + place);
          y[of_y] += x.values[of_x] * weight.values[of_weight];
          d_x[of_x] += d_y.values[of_y] * weight.values[of_weight];
          d_weight[of_weight] += d_y.values[of_y] * x.values[of_x];
        }
  }
};

TEST_CASE("windows have the elements of any convolution, and their gradient the sums of them") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(4000 + seed);
    const DType dtype = kRunTypes[draw(0, 2)];
    const WindowAttrs attrs = random_windows(draw);
    const int64_t kernel = attrs.kernel(), windows = attrs.windows();
    const int64_t channels = attrs.channels, samples = attrs.samples,
                  elements = attrs.planes * windows * samples * kernel * channels;
    const Operand x =
        random_operand(attrs.planes * attrs.positions() * samples * channels, dtype, seed + 1);
    const Operand d_y = random_operand(elements, dtype, seed + 2);
    std::vector<double> expected, sums(x.values.size(), 0);
    const auto& [d0, d1, d2] = attrs.dimensions;
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t c = i % channels, k = i / channels % kernel, of_sample = i / channels / kernel,
                    n = of_sample % samples, o = of_sample / samples % windows,
                    plane = of_sample / samples / windows;
      const int64_t at0 = o / d2.out / d1.out * d0.stride +
                          k / d2.kernel / d1.kernel * d0.dilation - d0.padding,
                    at1 = o / d2.out % d1.out * d1.stride +
                          k / d2.kernel % d1.kernel * d1.dilation - d1.padding,
                    at2 = o % d2.out * d2.stride + k % d2.kernel * d2.dilation - d2.padding;
      const bool inside =
          at0 >= 0 && at0 < d0.size && at1 >= 0 && at1 < d1.size && at2 >= 0 && at2 < d2.size;
      const auto element = static_cast<size_t>(
          ((((plane * d0.size + at0) * d1.size + at1) * d2.size + at2) * samples + n) * channels +
          c);
      expected.push_back(inside ? x.values[element] : static_cast<double>(attrs.outside));
      if (inside) sums[element] += d_y.values[static_cast<size_t>(i)];
    }
    INFO("seed " << seed << ", " << name_of(dtype));
    const auto got =
        run_everywhere({.op = OpKind::window, .attrs = attrs}, {x}, {{d_y.shape, dtype}});
    CHECK(got[0].values() == expected);
    const DType result = draw.once_in(2) ? DType::f32 : dtype;
    const auto back =
        run_everywhere({.op = OpKind::window_grad, .attrs = attrs}, {d_y}, {{x.shape, result}});
    require_near("window_grad", back[0].values(), sums, result, 1e-6);
  }
}

TEST_CASE("a convolution and its gradients are sums of products over the places of windows") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(7000 + seed);
    const DType dtype = kRunTypes[draw(0, 2)];
    const Case c(draw, dtype);
    INFO("seed " << seed << ", " << name_of(dtype));
    const auto y = run_everywhere({.op = OpKind::convolution, .attrs = c.attrs}, {c.x, c.weight},
                                  {{c.d_y.shape, dtype}});
    require_near("convolution", y[0].values(), c.y, dtype, 2e-6);
    const auto d_x = run_everywhere({.op = OpKind::convolution_input_grad, .attrs = c.attrs},
                                    {c.d_y, c.weight}, {{c.x.shape, dtype}});
    // The gradients of windows may be rounded before their sum is.
    require_near("convolution_input_grad", d_x[0].values(), c.d_x, dtype,
                 dtype == DType::f32    ? 2e-6
                 : dtype == DType::bf16 ? 8e-3
                                        : 1e-3);
    const auto d_weight = run_everywhere({.op = OpKind::convolution_weight_grad, .attrs = c.attrs},
                                         {c.d_y, c.x}, {{c.weight.shape, DType::f32}});
    require_near("convolution_weight_grad", d_weight[0].values(), c.d_weight, DType::f32, 4e-6);
  }
}

// What max_pool and its gradient give.
struct Pooled {
  std::vector<double> y{}, d_x{};

  Pooled(const WindowAttrs& w, const std::vector<double>& x, const std::vector<double>& d_y)
      : d_x(x.size(), 0) {
    const int64_t inner = w.samples * w.channels;
    for (int64_t i = 0; i < w.planes * w.windows() * inner; ++i) {
      const int64_t plane = i / inner / w.windows();
      double largest = -HUGE_VAL;
      int64_t first = -1;
      for (int64_t place = 0; place < w.kernel(); ++place) {
        const int64_t position = position_of(w, i / inner % w.windows(), place);
        if (position < 0) continue;
        const int64_t at = (plane * w.positions() + position) * inner + i % inner;
        const double value = x[static_cast<size_t>(at)];
        if (first >= 0 && value <= largest) continue;
        largest = value;
        first = at;
      }
      y.push_back(largest);
      if (first >= 0) d_x[static_cast<size_t>(first)] += d_y[static_cast<size_t>(i)];
    }
  }
};

TEST_CASE("a pool has the largest elements of windows, and the first of them the gradient") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(8000 + seed);
    const DType dtype = kRunTypes[draw(0, 2)];
    const WindowAttrs w = random_windows(draw);
    const int64_t inner = w.planes * w.samples * w.channels;
    Operand x = random_operand(w.positions() * inner, dtype, seed + 1);
    // Some elements are equal.
    for (double& value : x.values) value = std::round(value * 2);
    if (draw.once_in(8)) std::ranges::fill(x.values, -HUGE_VAL);
    const Operand d_y = random_operand(w.windows() * inner, dtype, seed + 2);
    const Pooled expected(w, x.values, d_y.values);
    INFO("seed " << seed << ", " << name_of(dtype));
    const auto y = run_everywhere({.op = OpKind::max_pool, .attrs = w}, {x}, {{d_y.shape, dtype}});
    CHECK(y[0].values() == expected.y);
    const auto d_x =
        run_everywhere({.op = OpKind::max_pool_grad, .attrs = w}, {d_y, x}, {{x.shape, dtype}});
    require_near("max_pool_grad", d_x[0].values(), expected.d_x, dtype, 1e-6);
  }
}

TEST_CASE("NaN is the largest element of its windows") {
  WindowAttrs w;
  w.dimensions[2] = {.size = 4, .kernel = 2, .stride = 2, .out = 2};
  const Operand x{{4}, DType::f32, {1, std::nan(""), 2, 3}}, d_y{{2}, DType::f32, {5, 7}};
  const auto y = run_everywhere({.op = OpKind::max_pool, .attrs = w}, {x}, {{{2}, DType::f32}});
  CHECK(std::isnan(y[0].values()[0]));
  CHECK(y[0].values()[1] == 3);
  const auto d_x =
      run_everywhere({.op = OpKind::max_pool_grad, .attrs = w}, {d_y, x}, {{{4}, DType::f32}});
  CHECK(d_x[0].values() == std::vector<double>{0, 5, 0, 7});
}

TEST_CASE("the gradient of a convolution's weight is added to what is there") {
  Draw draw(1);
  const Case c(draw, DType::f32);
  Operand before{c.weight.shape, DType::f32, std::vector<double>(c.d_weight.size(), 3)};
  const Call call{.op = OpKind::convolution_weight_grad, .attrs = c.attrs, .accumulate = true};
  const auto got = run_at_offset(call, {c.d_y, c.x}, {before}, 0);
  std::vector<double> expected = c.d_weight;
  for (double& value : expected) value += 3;
  require_near("convolution_weight_grad", got[0].values(), expected, DType::f32, 2e-6);
}

}  // namespace
}  // namespace windows
}  // namespace dstrain::parity
