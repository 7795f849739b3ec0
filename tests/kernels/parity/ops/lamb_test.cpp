#include "tests/kernels/parity/ops/flat_update.h"

namespace dstrain::parity {
namespace {

double square_sum(const Values& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return sum;
}

TEST_CASE("lamb follows its definition over 20 steps, and writes the rounded copy") {
  constexpr size_t n = 97;
  for (const auto& [grad, copy] : {std::pair{DType::f32, DType::f32},
                                   {DType::f32, DType::bf16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f16, DType::f16}})
    for (const bool inside : {false, true}) {
      const float decay = inside ? 0.0f : 0.1f;
      Values p = rounded(normal_values(n, 2), DType::f32), m(n), v(n);
      Values exact = p, exact_m(n), exact_v(n);
      for (int step = 0; step < 20; ++step) {
        const FlatStep s(step, n, grad, 0.9, 0.99);
        Call call{
            OpKind::lamb_direction,
            LambDirectionAttrs{.eps = 1e-6f, .weight_decay = decay, .eps_inside_sqrt = inside}};
        call.state = &s.state;
        const auto direction =
            run_everywhere(call, {s.in(), flat(p)}, {flat(m), flat(v), {Shape{n}, DType::f32}});
        m = direction[0].values();
        v = direction[1].values();
        const Values u = direction[2].values();
        // Two ranks with a part of each sum, of the second of three parameters.
        const double weights = square_sum(p), directions = square_sum(u);
        const Operand sums{
            Shape{12},
            DType::f64,
            {9, 9, weights / 4, directions / 2, 9, 9, 9, 9, weights * 3 / 4, directions / 2, 9, 9}};
        call.op = OpKind::lamb;
        call.attrs =
            LambAttrs{.min_coeff = 0.01f, .max_coeff = 10, .parameter = 1, .parameters = 3};
        const auto out =
            run_everywhere(call, {flat(u), sums},
                           {flat(p), copy == DType::f32 ? absent() : Operand{Shape{n}, copy}});
        p = out[0].values();
        if (copy != DType::f32) CHECK(out[1].values() == rounded(p, copy));
        Values exact_u(n);
        for (size_t i = 0; i < n; ++i) {
          exact_m[i] = 0.9 * exact_m[i] + (1 - 0.9) * s.g(i);
          exact_v[i] = 0.99 * exact_v[i] + (1 - 0.99) * s.g(i) * s.g(i);
          const double eps = 1e-6;
          exact_u[i] =
              exact_m[i] / (inside ? std::sqrt(exact_v[i] + eps) : std::sqrt(exact_v[i]) + eps) +
              static_cast<double>(decay) * exact[i];
        }
        const double trust =
            std::clamp(std::sqrt(square_sum(exact) / square_sum(exact_u)), 0.01, 10.0);
        const double corrected =
            std::sqrt(1 - std::pow(0.99, step + 1)) / (1 - std::pow(0.9, step + 1));
        for (size_t i = 0; i < n; ++i)
          exact[i] -= static_cast<double>(0.01f) * corrected * trust * exact_u[i];
      }
      require_close("p", p, exact, {5e-6, 5e-6});
      require_close("m", m, exact_m, {1e-5, 1e-7});
      require_close("v", v, exact_v, {1e-5, 1e-7});
    }
}

TEST_CASE("lamb's trust ratio is limited, and 1 where a norm is 0") {
  StepState s;
  s.lr = 1;
  Call call{OpKind::lamb,
            LambAttrs{.min_coeff = 0.5f, .max_coeff = 2, .parameter = 0, .parameters = 1}};
  call.state = &s;
  const auto moved = [&](double weight, double direction) {
    const Operand sums{Shape{2}, DType::f64, {weight, direction}};
    return -run_everywhere(call, {flat({1}), sums}, {flat({0}), absent()})[0].values()[0];
  };
  CHECK(moved(9, 4) == 1.5);
  CHECK(moved(100, 1) == 2);
  CHECK(moved(1, 100) == 0.5);
  CHECK(moved(0, 4) == 1);
  CHECK(moved(4, 0) == 1);
}

TEST_CASE("lamb: skipped steps change nothing, and slices have the bits of the whole") {
  FlatStep s(2, 97, DType::bf16, 0.9, 0.99);
  const Values p = rounded(normal_values(97, 2), DType::f32),
               slot = rounded(uniform_values(97, 4, 0.01, 0.1), DType::f32);
  Call call{OpKind::lamb_direction, LambDirectionAttrs{.weight_decay = 0.1f}};
  call.state = &s.state;
  require_slices_agree(call, {s.in(), flat(p)}, {flat(slot), flat(slot), {Shape{97}, DType::f32}});
  s.state.skip = 1;
  const auto kept =
      run_everywhere(call, {s.in(), flat(p)}, {flat(slot), flat(slot), {Shape{97}, DType::f32}});
  CHECK(kept[0].values() == slot);
  CHECK(kept[1].values() == slot);
  CHECK(kept[2].values() == Values(97));
  call.op = OpKind::lamb;
  call.attrs = LambAttrs{};
  const Operand sums{Shape{2}, DType::f64, {1, 1}};
  CHECK(run_everywhere(call, {flat(slot), sums}, {flat(p), absent()})[0].values() == p);
}

}  // namespace
}  // namespace dstrain::parity
