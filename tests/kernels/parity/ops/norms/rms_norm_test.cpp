#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

constexpr double kRmsEps = 1e-5;

// 1 / the root mean square of each run of `group` values, in doubles.
Values rms_of(const Values& x, int64_t group, double eps = kRmsEps) {
  Values rstd;
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(group)) {
    double square = 0;
    for (size_t i = first; i < first + static_cast<size_t>(group); ++i) square += x[i] * x[i];
    rstd.push_back(1 / std::sqrt(square / static_cast<double>(group) + eps));
  }
  return rstd;
}

// x * rstd of its run.
Values scaled(const Values& x, const Values& rstd) {
  Values y(x);
  const size_t group = x.size() / rstd.size();
  for (size_t i = 0; i < y.size(); ++i) y[i] *= rstd[i / group];
  return y;
}

Values times_columns(const Values& x, const Values& weight) {
  Values y(x);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= weight[i % weight.size()];
  return y;
}

// weight * (x * rstd), without any rounding.
Values rms_norm_of(const Values& x, const Values& weight) {
  return times_columns(scaled(x, rms_of(x, static_cast<int64_t>(weight.size()))), weight);
}

Values rms_input_grad_of(const Values& d_y, const Values& x, const Values& weight,
                         const Values& rstd) {
  Values d_x = times_columns(d_y, weight);
  const Values hat = scaled(x, rstd);
  const size_t group = weight.size();
  for (size_t first = 0; first < x.size(); first += group) {
    double mean = 0;
    for (size_t i = first; i < first + group; ++i)
      mean += d_x[i] * hat[i] / static_cast<double>(group);
    for (size_t i = first; i < first + group; ++i)
      d_x[i] = rstd[first / group] * (d_x[i] - hat[i] * mean);
  }
  return d_x;
}

// Runs of whole rows, and of the heads of a row.
struct RmsShape {
  int64_t r, c, group;
};
const RmsShape kRmsShapes[] = {{1, 1, 1},       {1, 97, 97}, {5, 16, 16}, {3, 768, 768},
                               {150, 300, 300}, {7, 96, 32}, {9, 60, 20}, {2, 16400, 16400}};

struct RmsInputs {
  int64_t r, c, group;
  DType dtype;
  Values x, weight, d_y, add, rstd;

  RmsInputs(RmsShape s, DType t)
      : r(s.r),
        c(s.c),
        group(s.group),
        dtype(t),
        x(rounded(normal_values(r * c, 1, 2), t)),
        weight(rounded(normal_values(group, 2), t)),
        d_y(rounded(normal_values(r * c, 3), t)),
        add(rounded(normal_values(r * c, 4), t)),
        rstd(rounded(rms_of(x, group), DType::f32)) {}
  Operand rows(const Values& v) const { return {Shape{r, c}, dtype, v}; }
  Operand weights() const { return {Shape{group}, dtype, weight}; }
  Operand statistic() const { return {Shape{r, c / group}, DType::f32, rstd}; }
};

TEST_CASE("rms_norm rounds normalised values before it multiplies them by the weights") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const RmsShape& s : kRmsShapes) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " R " << s.r << " C " << s.c << " G " << s.group);
      const RmsInputs f(s, dtype);
      const auto out = run_everywhere(
          {OpKind::rms_norm, RmsNormAttrs{static_cast<float>(kRmsEps)}}, {f.rows(f.x), f.weights()},
          {{Shape{f.r, f.c}, dtype}, {Shape{f.r, f.c / f.group}, DType::f32}});
      const Values rstd = out[1].values();
      require_close("rstd", rstd, rms_of(f.x, f.group), {2e-6, 0});
      // Products of two f32 are exact in f64, so these are the bits that the order of roundings gives.
      const Values normal = rounded(scaled(f.x, rstd), dtype);
      CHECK(out[0].values() == rounded(times_columns(normal, f.weight), dtype));
      const double once = tolerance_of(dtype).relative;
      require_close("y", out[0].values(), rms_norm_of(f.x, f.weight), {2.01 * once, 1e-6});
    }
}

TEST_CASE("centred weights multiply by 1 more, and what they multiply is rounded once") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const RmsShape& s : kRmsShapes) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " R " << s.r << " C " << s.c << " G " << s.group);
      const RmsInputs f(s, dtype);
      Values factor(f.weight);
      for (double& w : factor) w += 1;
      const RmsNormAttrs attrs{.eps = static_cast<float>(kRmsEps), .centred = true};
      const Operand rows{Shape{f.r, f.c}, dtype};
      const auto out = run_everywhere({OpKind::rms_norm, attrs}, {f.rows(f.x), f.weights()},
                                      {rows, {Shape{f.r, f.c / f.group}, DType::f32}});
      const double once = tolerance_of(dtype).relative;
      require_close("y", out[0].values(), rms_norm_of(f.x, factor), {1.01 * once, 1e-6});

      const auto d_x = run_everywhere(
          {OpKind::rms_norm_input_grad, attrs},
          {f.rows(f.d_y), f.rows(f.x), f.weights(), f.statistic(), f.rows(f.add)}, {rows});
      Values expected = rms_input_grad_of(f.d_y, f.x, factor, f.rstd);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += f.add[i];
      const double scale = *std::max_element(f.rstd.begin(), f.rstd.end());
      require_close("d_x", d_x[0].values(), expected, tolerance_of(dtype, 5 + scale));

      const auto d_w = run_everywhere({OpKind::rms_norm_weight_grad, attrs},
                                      {f.rows(f.d_y), f.rows(f.x), f.statistic()},
                                      {{Shape{f.group}, DType::f32}});
      const Values normal = scaled(f.x, f.rstd);
      Values d_weight(static_cast<size_t>(f.group));
      for (size_t i = 0; i < normal.size(); ++i)
        d_weight[i % d_weight.size()] += f.d_y[i] * normal[i];
      require_close("d_weight", d_w[0].values(), d_weight, {2e-6, 1e-5});
    }
}

TEST_CASE("rms_norm adds eps to the mean square") {
  const int64_t c = 48;
  const Values x = rounded(normal_values(c, 1, 1e-3), DType::f32), ones(c, 1);
  for (const double eps : {1e-3, 1e-6, 0.0}) {
    const auto out = run_at_offset({OpKind::rms_norm, RmsNormAttrs{static_cast<float>(eps)}},
                                   {{Shape{1, c}, DType::f32, x}, {Shape{c}, DType::f32, ones}},
                                   {{Shape{1, c}}, {Shape{1}}}, 0);
    require_close("y", out[0].values(), scaled(x, rms_of(x, c, eps)), {2e-6, 0});
  }
}

TEST_CASE("rms_norm_input_grad matches the formula and differences, with and without add") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const RmsShape& s : kRmsShapes)
      for (bool with_add : {false, true}) {
        if (!sample.takes()) continue;
        INFO(name_of(dtype) << " R " << s.r << " C " << s.c << " G " << s.group);
        const RmsInputs f(s, dtype);
        const auto out = run_everywhere({OpKind::rms_norm_input_grad},
                                        {f.rows(f.d_y), f.rows(f.x), f.weights(), f.statistic(),
                                         with_add ? f.rows(f.add) : absent()},
                                        {{Shape{f.r, f.c}, dtype}});
        Values expected = rms_input_grad_of(f.d_y, f.x, f.weight, f.rstd);
        if (with_add)
          for (size_t i = 0; i < expected.size(); ++i) expected[i] += f.add[i];
        const double scale = *std::max_element(f.rstd.begin(), f.rstd.end());
        require_close("d_x", out[0].values(), expected, tolerance_of(dtype, 5 + scale));
        if (dtype != DType::f32 || with_add || s.c == 1) continue;
        const Values direction = normal_values(f.r * f.c, 6);
        const double slope = directional_derivative(
            [&](const Values& x) { return dot(f.d_y, rms_norm_of(x, f.weight)); }, f.x, direction);
        CHECK(dot(out[0].values(), direction) == Approx(slope).epsilon(1e-4).margin(1e-4));
      }
}

TEST_CASE("rms_norm_weight_grad matches the formula and differences, written or accumulated") {
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (const RmsShape& s : kRmsShapes)
      for (bool accumulate : {false, true}) {
        if (!sample.takes()) continue;
        INFO(name_of(dtype) << " R " << s.r << " C " << s.c << " G " << s.group);
        const RmsInputs f(s, dtype);
        const Values before = rounded(normal_values(f.group, 7), DType::f32);
        Call call{OpKind::rms_norm_weight_grad};
        call.accumulate = accumulate;
        const auto out = run_everywhere(call, {f.rows(f.d_y), f.rows(f.x), f.statistic()},
                                        {{Shape{f.group}, DType::f32, before}});
        // What the weights were multiplied by.
        const Values normal = rounded(scaled(f.x, f.rstd), dtype);
        Values d_weight(static_cast<size_t>(f.group));
        if (accumulate) d_weight = before;
        for (size_t i = 0; i < normal.size(); ++i)
          d_weight[i % d_weight.size()] += f.d_y[i] * normal[i];
        require_close("d_weight", out[0].values(), d_weight, {2e-6, 1e-5});
        if (accumulate || dtype != DType::f32) continue;
        const Values direction = normal_values(f.group, 8);
        const double slope = directional_derivative(
            [&](const Values& w) { return dot(f.d_y, rms_norm_of(f.x, w)); }, f.weight, direction);
        CHECK(dot(out[0].values(), direction) == Approx(slope).epsilon(1e-4).margin(1e-4));
      }
}

}  // namespace
}  // namespace dstrain::parity
