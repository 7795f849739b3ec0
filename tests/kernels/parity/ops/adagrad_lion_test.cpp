#include "tests/kernels/parity/ops/flat_update.h"

namespace dstrain::parity {
namespace {

constexpr int kSteps = 20;

TEST_CASE("adagrad follows its definition over 20 steps, and writes the rounded copy") {
  for (const int64_t n : {1, 97})
    for (const auto& [grad, copy] : {std::pair{DType::f32, DType::f32},
                                     {DType::f32, DType::bf16},
                                     {DType::bf16, DType::bf16},
                                     {DType::f16, DType::f16}})
      for (const float decay : {0.0f, 0.1f}) {
        Values p = rounded(normal_values(n, 2), DType::f32), sum(p.size());
        Values exact = p, exact_sum(p.size());
        for (int step = 0; step < kSteps; ++step) {
          const FlatStep s(step, n, grad, 0, 0);
          Call call{OpKind::adagrad, AdagradAttrs{.eps = 1e-10f, .weight_decay = decay}};
          call.state = &s.state;
          const auto out = run_everywhere(
              call, {s.in()},
              {flat(p), flat(sum), copy == DType::f32 ? absent() : Operand{Shape{n}, copy}});
          p = out[0].values();
          sum = out[1].values();
          for (size_t i = 0; i < exact.size(); ++i) {
            const double g = s.g(i) + static_cast<double>(decay) * exact[i];
            exact_sum[i] += g * g;
            exact[i] -= static_cast<double>(0.01f) * g / (std::sqrt(exact_sum[i]) + 1e-10);
          }
          if (copy != DType::f32) CHECK(out[2].values() == rounded(p, copy));
        }
        require_close("p", p, exact, {1e-6, 1e-6});
        require_close("sum", sum, exact_sum, {1e-5, 1e-7});
      }
}

TEST_CASE("lion follows its definition over 20 steps, and writes the rounded copy") {
  for (const int64_t n : {1, 97})
    for (const auto& [grad, copy] : {std::pair{DType::f32, DType::f32},
                                     {DType::f32, DType::bf16},
                                     {DType::bf16, DType::bf16},
                                     {DType::f16, DType::f16}})
      for (const float decay : {0.0f, 0.1f}) {
        Values p = rounded(normal_values(n, 2), DType::f32), m(p.size());
        Values exact = p, exact_m(p.size());
        for (int step = 0; step < kSteps; ++step) {
          const FlatStep s(step, n, grad, 0.9, 0.99);
          Call call{OpKind::lion, LionAttrs{.weight_decay = decay}};
          call.state = &s.state;
          const auto out = run_everywhere(
              call, {s.in()},
              {flat(p), flat(m), copy == DType::f32 ? absent() : Operand{Shape{n}, copy}});
          p = out[0].values();
          m = out[1].values();
          for (size_t i = 0; i < exact.size(); ++i) {
            const double c = 0.9 * exact_m[i] + (1 - 0.9) * s.g(i);
            const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
            exact[i] -= static_cast<double>(0.01f) * (sign + static_cast<double>(decay) * exact[i]);
            exact_m[i] = 0.99 * exact_m[i] + (1 - 0.99) * s.g(i);
          }
          if (copy != DType::f32) CHECK(out[2].values() == rounded(p, copy));
        }
        require_close("p", p, exact, {1e-6, 1e-6});
        require_close("m", m, exact_m, {1e-5, 1e-7});
      }
}

TEST_CASE("lion does not move a weight whose gradient and momentum are zero") {
  const FlatStep s(0, 5, DType::f32, 0.9, 0.99);
  Call call{OpKind::lion, LionAttrs{}};
  call.state = &s.state;
  const Values p{1, -2, 0, 3, 4}, zero(5);
  const auto out = run_everywhere(call, {flat(zero)}, {flat(p), flat(zero), absent()});
  CHECK(out[0].values() == p);
  CHECK(out[1].values() == zero);
}

TEST_CASE("adagrad and lion: skipped steps change nothing, and slices have the bits of the whole") {
  FlatStep s(2, 97, DType::bf16, 0.9, 0.99);
  const Values p = rounded(normal_values(97, 2), DType::f32),
               slot = rounded(uniform_values(97, 4, 0.01, 0.1), DType::f32);
  for (const OpKind op : {OpKind::adagrad, OpKind::lion}) {
    Call call{op};
    if (op == OpKind::adagrad)
      call.attrs = AdagradAttrs{.weight_decay = 0.1f};
    else
      call.attrs = LionAttrs{.weight_decay = 0.1f};
    call.state = &s.state;
    s.state.skip = 0;
    require_slices_agree(call, {s.in()}, {flat(p), flat(slot), {Shape{97}, DType::bf16}});
    s.state.skip = 1;
    const Operand copy{Shape{97}, DType::bf16, s.gradient};
    const auto out = run_everywhere(call, {s.in()}, {flat(p), flat(slot), copy});
    CHECK(out[0].values() == p);
    CHECK(out[1].values() == slot);
    CHECK(out[2].values() == s.gradient);
  }
}

}  // namespace
}  // namespace dstrain::parity
