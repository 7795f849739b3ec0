#include "tests/kernels/parity/device_sample.h"
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
  Sample sample = sample_if_emulated(1);
  for (DType dtype : kRunTypes)
    for (const NormShapes& s : kNormShapes)
      for (bool with_add : {false, true}) {
        if (!sample.takes()) continue;
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
  Sample sample = sample_if_emulated(1);
  for (DType dtype : kRunTypes)
    for (const NormShapes& s : kNormShapes)
      for (bool accumulate : {false, true}) {
        if (!sample.takes()) continue;
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

// Sizes of one, two and more warps for a row; with packs of 8 elements and without.
const NormShapes kJoinedShapes[] = {{1, 8},    {9, 97},    {70, 768},  {21, 1024},
                                    {6, 1032}, {66, 1536}, {21, 1600}, {18, 2048},
                                    {5, 2056}, {21, 3072}, {5, 4104}};

TEST_CASE("layer_norm_grad has the bits of the two ops that it joins") {
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (const NormShapes& s : kJoinedShapes)
      for (bool more : {false, true}) {  // a gradient to add, sums to add to
        if (!sample.takes()) continue;
        INFO(name_of(dtype) << " R " << s.r << " C " << s.c << " more " << more);
        const Fixture f(s, dtype);
        const Operand d_y = f.rows(f.d_y), x = f.rows(f.x), add = more ? f.rows(f.add) : absent();
        const Operand mean = f.statistic(f.norm.mean), rstd = f.statistic(f.norm.rstd);
        const Operand d_x{Shape{f.r, f.c}, dtype},
            sums{Shape{f.c}, DType::f32, rounded(normal_values(f.c, 7), DType::f32)};
        Call both{OpKind::layer_norm_grad}, weight{OpKind::layer_norm_weight_grad};
        both.accumulate = weight.accumulate = more;
        const auto joined =
            run_everywhere(both, {d_y, x, f.row(f.weight), mean, rstd, add}, {d_x, sums, sums});
        const auto first = run_at_offset({OpKind::layer_norm_input_grad},
                                         {d_y, x, f.row(f.weight), mean, rstd, add}, {d_x}, 0);
        const auto second = run_at_offset(weight, {d_y, x, mean, rstd}, {sums, sums}, 0);
        require_same_bits("d_x", joined[0], first[0]);
        require_same_bits("d_weight", joined[1], second[0]);
        require_same_bits("d_bias", joined[2], second[1]);
      }
}

TEST_CASE("add_layer_norm has the bits of the two ops that it joins") {
  constexpr int64_t kSamples = 3;
  StepState state;
  state.seed = 11;
  state.first_sample = (int64_t{1} << 33) - 1;
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (const NormShapes& s : kJoinedShapes)
      for (float dropout : {0.0f, 0.3f}) {
        if (!sample.takes()) continue;
        INFO(name_of(dtype) << " R " << kSamples * s.r << " C " << s.c << " dropout " << dropout);
        const Fixture f({kSamples * s.r, s.c}, dtype);
        const DropoutAttrs drops{dropout, 5, s.r};
        const Operand x = f.rows(f.x), h = f.rows(f.add), weight = f.row(f.weight),
                      bias = f.row(f.bias);
        const Operand rows{Shape{f.r, f.c}, dtype}, statistic{Shape{f.r}, DType::f32};
        const Call add{OpKind::add_dropout, drops, 1, &state, 2};
        const Call both{OpKind::add_layer_norm, AddLayerNormAttrs{drops, {1e-4f}}, 1, &state, 2};
        const auto joined =
            run_everywhere(both, {x, h, weight, bias}, {rows, rows, statistic, statistic});
        const auto sum = run_at_offset(add, {x, h}, {rows}, 0);
        const auto norm =
            run_at_offset({OpKind::layer_norm, LayerNormAttrs{1e-4f}},
                          {f.rows(sum[0].values()), weight, bias}, {rows, statistic, statistic}, 0);
        require_same_bits("sum", joined[0], sum[0]);
        require_same_bits("y", joined[1], norm[0]);
        require_same_bits("mean", joined[2], norm[1]);
        require_same_bits("rstd", joined[3], norm[2]);
      }
}

}  // namespace
}  // namespace dstrain::parity
