#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

struct Norm {
  int64_t rows, columns;
  Values y, mean, rstd;

  Norm(const Values& x, const Values& weight, const Values& bias, int64_t r, int64_t c)
      : rows(r), columns(c), y(x.size()) {
    for (int64_t i = 0; i < r; ++i) {
      const double* row = x.data() + i * c;
      double m = 0, v = 0;
      for (int64_t j = 0; j < c; ++j) m += row[j] / static_cast<double>(c);
      for (int64_t j = 0; j < c; ++j) v += (row[j] - m) * (row[j] - m) / static_cast<double>(c);
      mean.push_back(m);
      rstd.push_back(1 / std::sqrt(v + 1e-5));
      for (int64_t j = 0; j < c; ++j)
        y[static_cast<size_t>(i * c + j)] =
            (row[j] - m) * rstd.back() * weight[static_cast<size_t>(j)] +
            bias[static_cast<size_t>(j)];
    }
  }
};

// d_x, d_weight, d_bias of sum(d_y * y), in doubles.
struct NormGrad {
  Values d_x, d_weight, d_bias;

  NormGrad(const Values& d_y, const Values& x, const Values& weight, const Norm& norm)
      : d_x(x.size()), d_weight(weight.size()), d_bias(weight.size()) {
    const int64_t c = norm.columns;
    for (int64_t i = 0; i < norm.rows; ++i) {
      const auto r = static_cast<size_t>(i);
      double g_mean = 0, h_mean = 0;
      const auto at = [&](int64_t j) { return static_cast<size_t>(i * c + j); };
      const auto hat = [&](int64_t j) { return (x[at(j)] - norm.mean[r]) * norm.rstd[r]; };
      for (int64_t j = 0; j < c; ++j) {
        const double g = d_y[at(j)] * weight[static_cast<size_t>(j)];
        g_mean += g / static_cast<double>(c);
        h_mean += g * hat(j) / static_cast<double>(c);
        d_weight[static_cast<size_t>(j)] += d_y[at(j)] * hat(j);
        d_bias[static_cast<size_t>(j)] += d_y[at(j)];
      }
      for (int64_t j = 0; j < c; ++j)
        d_x[at(j)] =
            norm.rstd[r] * (d_y[at(j)] * weight[static_cast<size_t>(j)] - g_mean - hat(j) * h_mean);
    }
  }
};

struct NormShapes {
  int64_t r, c;
};
const NormShapes kNormShapes[] = {{1, 1}, {1, 97}, {5, 16}, {3, 768}, {150, 300}};

struct Fixture {
  int64_t r, c;
  DType dtype;
  Values x, weight, bias, d_y, add;
  Norm norm;

  Fixture(NormShapes s, DType t)
      : r(s.r),
        c(s.c),
        dtype(t),
        x(rounded(normal_values(r * c, 1, 2), t)),
        weight(rounded(normal_values(c, 2), t)),
        bias(rounded(normal_values(c, 3), t)),
        d_y(rounded(normal_values(r * c, 4), t)),
        add(rounded(normal_values(r * c, 5), t)),
        norm(x, weight, bias, r, c) {}
  Operand rows(const Values& v) const { return {Shape{r, c}, dtype, v}; }
  Operand row(const Values& v) const { return {Shape{c}, dtype, v}; }
  Operand statistic(const Values& v) const { return {Shape{r}, DType::f32, v}; }
};

TEST_CASE("layer_norm normalises each row and returns its statistics") {
  for (DType dtype : kRunTypes)
    for (const NormShapes& s : kNormShapes) {
      INFO(name_of(dtype) << " R " << s.r << " C " << s.c);
      const Fixture f(s, dtype);
      const auto out = run_everywhere(
          {OpKind::layer_norm}, {f.rows(f.x), f.row(f.weight), f.row(f.bias)},
          {{Shape{f.r, f.c}, dtype}, {Shape{f.r}, DType::f32}, {Shape{f.r}, DType::f32}});
      require_close("y", out[0].values(), f.norm.y, tolerance_of(dtype, 2));
      require_close("mean", out[1].values(), f.norm.mean, {1e-6, 1e-6});
      require_close("rstd", out[2].values(), f.norm.rstd, {2e-6, 0});
    }
}

TEST_CASE("layer_norm keeps its accuracy where the mean is a thousand times the deviation") {
  Values x = normal_values(768, 1);
  for (double& v : x) v += 1000;
  x = rounded(x, DType::f32);
  const Values ones(768, 1), zeros(768, 0);
  const auto out = run_at_offset({OpKind::layer_norm},
                                 {{Shape{1, 768}, DType::f32, x},
                                  {Shape{768}, DType::f32, ones},
                                  {Shape{768}, DType::f32, zeros}},
                                 {{Shape{1, 768}}, {Shape{1}}, {Shape{1}}}, 0);
  // The mean has an error of one f32 ulp of 1000.
  require_close("y", out[0].values(), Norm(x, ones, zeros, 1, 768).y, {1e-5, 1e-4});
}

TEST_CASE("layer_norm_input_grad matches the formula and differences, with and without add") {
  for (DType dtype : kRunTypes)
    for (const NormShapes& s : kNormShapes)
      for (bool with_add : {false, true}) {
        INFO(name_of(dtype) << " R " << s.r << " C " << s.c);
        const Fixture f(s, dtype);
        const auto out =
            run_everywhere({OpKind::layer_norm_input_grad},
                           {f.rows(f.d_y), f.rows(f.x), f.row(f.weight), f.statistic(f.norm.mean),
                            f.statistic(f.norm.rstd), with_add ? f.rows(f.add) : absent()},
                           {{Shape{f.r, f.c}, dtype}});
        Values expected = NormGrad(f.d_y, f.x, f.weight, f.norm).d_x;
        if (with_add)
          for (size_t i = 0; i < expected.size(); ++i) expected[i] += f.add[i];
        const double scale = *std::max_element(f.norm.rstd.begin(), f.norm.rstd.end());
        require_close("d_x", out[0].values(), expected, tolerance_of(dtype, 5 + scale));
        if (dtype != DType::f32 || with_add || s.c == 1) continue;
        const Values direction = normal_values(f.r * f.c, 6);
        const double slope = directional_derivative(
            [&](const Values& x) { return dot(f.d_y, Norm(x, f.weight, f.bias, f.r, f.c).y); }, f.x,
            direction);
        CHECK(dot(out[0].values(), direction) == Approx(slope).epsilon(1e-4).margin(1e-4));
      }
}

TEST_CASE("layer_norm_weight_grad matches the formula and differences, written or accumulated") {
  for (DType dtype : kRunTypes)
    for (const NormShapes& s : kNormShapes)
      for (bool accumulate : {false, true}) {
        const Fixture f(s, dtype);
        const Values before = rounded(normal_values(f.c, 7), DType::f32);
        Call call{OpKind::layer_norm_weight_grad};
        call.accumulate = accumulate;
        const auto out = run_everywhere(
            call, {f.rows(f.d_y), f.rows(f.x), f.statistic(f.norm.mean), f.statistic(f.norm.rstd)},
            {{Shape{f.c}, DType::f32, before}, {Shape{f.c}, DType::f32, before}});
        NormGrad grad(f.d_y, f.x, f.weight, f.norm);
        if (accumulate)
          for (size_t i = 0; i < before.size(); ++i)
            grad.d_weight[i] += before[i], grad.d_bias[i] += before[i];
        require_close("d_weight", out[0].values(), grad.d_weight, {2e-6, 1e-5});
        require_close("d_bias", out[1].values(), grad.d_bias, {2e-6, 1e-5});
        if (accumulate || dtype != DType::f32) continue;
        const Values direction = normal_values(f.c, 8);
        const double slope = directional_derivative(
            [&](const Values& w) { return dot(f.d_y, Norm(f.x, w, f.bias, f.r, f.c).y); }, f.weight,
            direction);
        CHECK(dot(out[0].values(), direction) == Approx(slope).epsilon(1e-4).margin(1e-4));
      }
}

}  // namespace
}  // namespace dstrain::parity
