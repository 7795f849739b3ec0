#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

const double kRoot = std::sqrt(2 / M_PI);

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kRoot * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(kRoot * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot * (1 + 3 * 0.044715 * x * x);
}

double gelu_erf(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}
double gelu_erf_slope(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}

template <class F>
std::vector<double> map(const std::vector<double>& x, const F& f) {
  std::vector<double> y(x.size());
  std::transform(x.begin(), x.end(), y.begin(), f);
  return y;
}

// The definition of an activation and its slope. ReLU's is taken at y, which has x's sign.
struct Curve {
  Activation kind;
  double (*value)(double);
  double (*slope)(double);
};
const Curve kCurves[] = {{Activation::relu, [](double x) { return std::max(x, 0.0); },
                          [](double x) { return x > 0 ? 1.0 : 0.0; }},
                         {Activation::gelu, gelu, gelu_slope},
                         {Activation::gelu_erf, gelu_erf, gelu_erf_slope}};

TEST_CASE("activation computes relu and gelu at every size, dtype, start and thread count") {
  for (DType dtype : kRunTypes)
    for (int64_t n : {1, 15, 16, 97, 768, 40000})
      for (const Curve& curve : kCurves) {
        const auto x = rounded(normal_values(n, 1, 3), dtype);
        Call call{OpKind::activation};
        call.attrs = ActivationAttrs{.activation = curve.kind};
        const auto y = run_everywhere(call, {{Shape{n}, dtype, x}}, {{Shape{n}, dtype}});
        require_close("activation", y[0].values(), map(x, curve.value), tolerance_of(dtype));
      }
}

TEST_CASE("activation_grad is the slope times d_y, in place too, and agrees with differences") {
  for (DType dtype : kRunTypes)
    for (int64_t n : {1, 16, 97, 40000})
      for (const Curve& curve : kCurves) {
        const auto d_y = rounded(normal_values(n, 1), dtype);
        const auto ref = rounded(normal_values(n, 2, 2), dtype);
        Call call{OpKind::activation_grad};
        call.attrs = ActivationAttrs{.activation = curve.kind};
        const std::vector<Operand> in{{Shape{n}, dtype, d_y}, {Shape{n}, dtype, ref}};
        const auto d_x = run_everywhere(call, in, {{Shape{n}, dtype}});
        std::vector<double> expected(d_y);
        for (size_t i = 0; i < d_y.size(); ++i) expected[i] *= curve.slope(ref[i]);
        require_close("slope", d_x[0].values(), expected, tolerance_of(dtype));
        const auto in_place = run_everywhere(call, in, {{Shape{n}, dtype, {}, 0}});
        require_same_bits("in place", in_place[0], d_x[0]);
        if (curve.kind != Activation::relu && dtype == DType::f32) {
          const auto direction = normal_values(n, 3);
          const double expected_slope = directional_derivative(
              [&](const std::vector<double>& x) { return dot(d_y, map(x, curve.value)); }, ref,
              direction);
          CHECK(dot(d_x[0].values(), direction) ==
                Approx(expected_slope).epsilon(1e-5).margin(1e-5));
        }
      }
}

TEST_CASE("gelu and its slope keep their relative accuracy in f32 from -8 to 8") {
  const int64_t n = 16001;
  std::vector<double> x(n);
  for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = -8 + static_cast<double>(i) / 1000;
  x = rounded(x, DType::f32);
  Call call{OpKind::activation};
  call.attrs = ActivationAttrs{.activation = Activation::gelu};
  const auto y =
      run_at_offset(call, {{Shape{n}, DType::f32, x}}, {{Shape{n}, DType::f32}}, 0)[0].values();
  // For very negative x the rounding of the exponent dominates: |2 u| reaches 60.
  for (size_t i = 0; i < x.size(); ++i) {
    const double u2 = 2 * kRoot * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
    const double expected = x[i] / (1 + std::exp(-u2));
    INFO(x[i]);
    REQUIRE(std::abs(y[i] - expected) <= (1e-6 + 2.5e-7 * std::abs(u2)) * std::abs(expected));
  }
}

TEST_CASE("exact gelu keeps its relative accuracy in f32 from -8 to 8") {
  const int64_t n = 16001;
  std::vector<double> x(n);
  for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = -8 + static_cast<double>(i) / 1000;
  x = rounded(x, DType::f32);
  const auto y = run_at_offset({OpKind::activation, ActivationAttrs{Activation::gelu_erf}},
                               {{Shape{n}, DType::f32, x}}, {{Shape{n}, DType::f32}}, 0)[0]
                     .values();
  // For very negative x the rounding of the exponent, x^2 / 2, dominates.
  for (size_t i = 0; i < x.size(); ++i) {
    INFO(x[i]);
    const double share = 1e-6 + 2.5e-7 * x[i] * x[i] / 2;
    REQUIRE(std::abs(y[i] - gelu_erf(x[i])) <= share * std::abs(gelu_erf(x[i])));
  }
}

TEST_CASE("relu and gelu let NaN and infinity through") {
  const double inf = HUGE_VAL;
  for (DType dtype : kRunTypes)
    for (Activation kind : {Activation::relu, Activation::gelu, Activation::gelu_erf}) {
      Call call{OpKind::activation};
      call.attrs = ActivationAttrs{.activation = kind};
      const auto y =
          run_at_offset(call, {{Shape{3}, dtype, {std::nan(""), inf, 1}}}, {{Shape{3}, dtype}}, 1);
      CHECK(std::isnan(y[0].values()[0]));
      CHECK(y[0].values()[1] == inf);
    }
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double silu_slope(double x) {
  return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}
const ActivationAttrs kSilu{Activation::silu};
const Curve kGates[] = {{Activation::silu, silu, silu_slope},
                        {Activation::gelu, gelu, gelu_slope},
                        {Activation::gelu_erf, gelu_erf, gelu_erf_slope}};

TEST_CASE("gated is the activation of the gate times the other operand") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (int64_t n : {1, 15, 16, 97, 768, 40000})
      for (const Curve& curve : kGates) {
        if (!sample.takes()) continue;
        const auto gate = rounded(normal_values(n, 1, 3), dtype),
                   up = rounded(normal_values(n, 2), dtype);
        const auto y =
            run_everywhere({OpKind::gated, ActivationAttrs{curve.kind}},
                           {{Shape{n}, dtype, gate}, {Shape{n}, dtype, up}}, {{Shape{n}, dtype}});
        std::vector<double> expected = map(gate, curve.value);
        for (size_t i = 0; i < expected.size(); ++i) expected[i] *= up[i];
        require_close("y", y[0].values(), expected, tolerance_of(dtype));
      }
}

TEST_CASE("gated_grad matches the formula, in place too, and agrees with differences") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (int64_t n : {1, 16, 97, 40000})
      for (const Curve& curve : kGates) {
        if (!sample.takes()) continue;
        const auto d_y = rounded(normal_values(n, 1), dtype),
                   gate = rounded(normal_values(n, 2, 3), dtype),
                   up = rounded(normal_values(n, 3), dtype);
        const Call call{OpKind::gated_grad, ActivationAttrs{curve.kind}};
        const std::vector<Operand> in{
            {Shape{n}, dtype, d_y}, {Shape{n}, dtype, gate}, {Shape{n}, dtype, up}};
        const Operand out{Shape{n}, dtype};
        const auto grads = run_everywhere(call, in, {out, out});
        std::vector<double> d_gate = map(gate, curve.slope), d_up = map(gate, curve.value);
        for (size_t i = 0; i < d_y.size(); ++i) d_gate[i] *= d_y[i] * up[i], d_up[i] *= d_y[i];
        require_close("d_gate", grads[0].values(), d_gate, tolerance_of(dtype, 4));
        require_close("d_up", grads[1].values(), d_up, tolerance_of(dtype, 2));
        const auto in_place = run_everywhere(call, in, {{Shape{n}, dtype, {}, 0}, out});
        require_same_bits("d_gate in place", in_place[0], grads[0]);
        require_same_bits("d_up beside it", in_place[1], grads[1]);
        if (dtype != DType::f32) continue;
        const auto to_gate = normal_values(n, 4), to_up = normal_values(n, 5);
        const auto loss = [&](double step) {
          double sum = 0;
          for (size_t i = 0; i < gate.size(); ++i)
            sum += d_y[i] * curve.value(gate[i] + step * to_gate[i]) * (up[i] + step * to_up[i]);
          return sum;
        };
        const double slope = (loss(1e-5) - loss(-1e-5)) / 2e-5;
        CHECK(dot(grads[0].values(), to_gate) + dot(grads[1].values(), to_up) ==
              Approx(slope).epsilon(1e-4).margin(1e-4));
      }
}

TEST_CASE("a gate that is closed or open wide has silu's limits") {
  const std::vector<double> gate{-300, -95, 95, 300, std::nan("")};
  const Operand in{Shape{5}, DType::f32, gate}, ones{Shape{5}, DType::f32, {1, 1, 1, 1, 1}},
      out{Shape{5}, DType::f32};
  const auto y = run_at_offset({OpKind::gated, kSilu}, {in, ones}, {out}, 1)[0].values();
  const auto grads = run_at_offset({OpKind::gated_grad, kSilu}, {ones, in, ones}, {out, out}, 1);
  const auto slope = grads[0].values(), value = grads[1].values();
  for (size_t i = 0; i < 4; ++i) {
    const double limit = gate[i] < 0 ? 0 : gate[i];
    CHECK(y[i] == Approx(limit).margin(1e-35));
    CHECK(value[i] == Approx(limit).margin(1e-35));
    CHECK(slope[i] == Approx(gate[i] < 0 ? 0 : 1).margin(1e-35));
  }
  CHECK((std::isnan(y[4]) && std::isnan(value[4]) && std::isnan(slope[4])));
}

TEST_CASE("softcap is the cap times tanh, near 0 too, and softcap_grad its slope, in place too") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (int64_t n : {1, 15, 16, 97, 40000})
      for (const float cap : {0.5f, 2.0f, 30.0f})
        for (const double size : {1e-3, 1.0, 40.0}) {
          if (!sample.takes()) continue;
          INFO(name_of(dtype) << " n " << n << " cap " << cap << " values of " << size);
          const double limit = static_cast<double>(cap);
          const auto x = rounded(normal_values(n, 1, size), dtype),
                     d_y = rounded(normal_values(n, 2), dtype);
          const Operand in{Shape{n}, dtype, x}, out{Shape{n}, dtype};
          const auto y = run_everywhere({OpKind::softcap, SoftcapAttrs{cap}}, {in}, {out});
          const auto value = [&](double v) { return limit * std::tanh(v / limit); };
          require_close("y", y[0].values(), map(x, value), tolerance_of(dtype));
          const Call back{OpKind::softcap_grad, SoftcapAttrs{cap}};
          const std::vector<Operand> of_back{{Shape{n}, dtype, d_y}, in};
          const auto d_x = run_everywhere(back, of_back, {out});
          std::vector<double> expected(d_y);
          for (size_t i = 0; i < expected.size(); ++i)
            expected[i] /= std::pow(std::cosh(x[i] / limit), 2);
          require_close("d_x", d_x[0].values(), expected, tolerance_of(dtype, 2));
          const auto in_place = run_everywhere(back, of_back, {{Shape{n}, dtype, {}, 0}});
          require_same_bits("in place", in_place[0], d_x[0]);
        }
}

TEST_CASE("add adds") {
  for (DType dtype : kRunTypes)
    for (int64_t n : {1, 17, 97, 40000}) {
      const auto a = rounded(normal_values(n, 1), dtype), b = rounded(normal_values(n, 2), dtype);
      const auto y = run_everywhere({OpKind::add}, {{Shape{n}, dtype, a}, {Shape{n}, dtype, b}},
                                    {{Shape{n}, dtype}});
      std::vector<double> sum(a);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
      CHECK(y[0].values() == rounded(sum, dtype));
    }
}

TEST_CASE("scale multiplies in f32 and rounds once, in place too") {
  for (DType dtype : kRunTypes)
    for (int64_t n : {1, 15, 16, 97, 40000})
      for (const float factor : {1.0f, 2.0f, 0.3f, -1.7f, 0.0f}) {
        const auto x = rounded(normal_values(n, 1, 3), dtype);
        const Call call{OpKind::scale, ScaleAttrs{factor}};
        const std::vector<Operand> in{{Shape{n}, dtype, x}};
        const auto y = run_everywhere(call, in, {{Shape{n}, dtype}});
        const auto product = map(x, [&](double v) { return v * static_cast<double>(factor); });
        CHECK(y[0].values() == rounded(rounded(product, DType::f32), dtype));
        const auto in_place = run_everywhere(call, in, {{Shape{n}, dtype, {}, 0}});
        require_same_bits("in place", in_place[0], y[0]);
      }
}

TEST_CASE("scale without attributes copies, and lets NaN and infinity through") {
  const double inf = HUGE_VAL;
  for (DType dtype : kRunTypes) {
    const Operand x{Shape{4}, dtype, {std::nan(""), inf, -inf, 1.5}}, out{Shape{4}, dtype};
    CHECK(run_at_offset({OpKind::scale}, {x}, {out}, 1)[0].values()[3] == 1.5);
    const auto y = run_at_offset({OpKind::scale, ScaleAttrs{-0.5f}}, {x}, {out}, 1)[0].values();
    CHECK(std::isnan(y[0]));
    CHECK((y[1] == -inf && y[2] == inf && y[3] == -0.75));
  }
}

TEST_CASE("an element of an element by element op has the same bits in every slice") {
  const int64_t n = 97;
  for (DType dtype : kRunTypes) {
    const std::vector<Operand> two{{Shape{n}, dtype, normal_values(n, 1, 3)},
                                   {Shape{n}, dtype, normal_values(n, 2, 3)}};
    const std::vector<Operand> out{{Shape{n}, dtype}};
    require_slices_agree({OpKind::add}, two, out);
    require_slices_agree({OpKind::scale, ScaleAttrs{0.3f}}, {two[0]}, out);
    require_slices_agree({OpKind::softcap, SoftcapAttrs{2}}, {two[0]}, out);
    require_slices_agree({OpKind::softcap_grad, SoftcapAttrs{2}}, two, out);
    for (Activation kind : {Activation::relu, Activation::gelu, Activation::gelu_erf}) {
      Call call{OpKind::activation};
      call.attrs = ActivationAttrs{.activation = kind};
      require_slices_agree(call, {two[0]}, out);
      call.op = OpKind::activation_grad;
      require_slices_agree(call, two, out);
    }
    require_slices_agree({OpKind::gated, kSilu}, two, out);
    require_slices_agree({OpKind::gated_grad, kSilu}, {two[0], two[1], two[0]}, {out[0], out[0]});
  }
}

TEST_CASE("element by element ops do nothing on no elements") {
  for (OpKind op : {OpKind::activation, OpKind::activation_grad, OpKind::add, OpKind::scale,
                    OpKind::cast, OpKind::accumulate, OpKind::round_wire})
    run_at_offset({op}, {{Shape{0}}, {Shape{0}}}, {{Shape{0}}}, 0);
}

}  // namespace
}  // namespace dstrain::parity
