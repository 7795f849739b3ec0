#include "runtime/ir/ops/newton_schulz.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/flat_update.h"

namespace dstrain::parity {
namespace {

struct Size {
  int64_t rows, columns;
};
// Square, wide and tall ones, on both sides of the sizes from which the Gram matrix takes fewer FLOPs.
constexpr Size kSizes[] = {{1, 1},   {1, 40},  {37, 1},  {16, 16},
                           {24, 33}, {13, 70}, {66, 19}, {40, 36}};

// a (n,k) b (k,m) in fp64.
Values multiply(const Values& a, const Values& b, int64_t n, int64_t k, int64_t m) {
  Values c(static_cast<size_t>(n * m));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j)
      for (int64_t l = 0; l < m; ++l)
        c[static_cast<size_t>(i * m + l)] +=
            a[static_cast<size_t>(i * k + j)] * b[static_cast<size_t>(j * m + l)];
  return c;
}

Values transposed(const Values& a, Size s) {
  Values t(a.size());
  for (int64_t i = 0; i < s.rows; ++i)
    for (int64_t j = 0; j < s.columns; ++j)
      t[static_cast<size_t>(j * s.rows + i)] = a[static_cast<size_t>(i * s.columns + j)];
  return t;
}

// The definition of Jordan (2024) in fp64, step by step.
Values orthogonalized(Values x, Size s) {
  if (s.rows > s.columns) {
    const Size turned{s.columns, s.rows};
    return transposed(orthogonalized(transposed(x, s), turned), turned);
  }
  double sum = 0;
  for (const double v : x) sum += v * v;
  for (double& v : x) v /= std::sqrt(sum) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const Values a = multiply(x, transposed(x, s), s.rows, s.columns, s.rows);
    Values b = multiply(a, a, s.rows, s.rows, s.rows);
    for (size_t i = 0; i < b.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * b[i];
    const Values y = multiply(b, x, s.rows, s.rows, s.columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + y[i];
  }
  return x;
}

Operand matrix(Size s, const Values& values) {
  return {Shape{s.rows, s.columns}, DType::f32, values};
}

Values orthogonalized_by_kernel(bool gram, Size s, const Values& x) {
  const StepState state;
  Call call{OpKind::orthogonalize, OrthogonalizeAttrs{.gram = gram}};
  call.state = &state;
  const Values y =
      run_everywhere(call, {matrix(s, x)}, {{Shape{s.rows, s.columns}, DType::f32}})[0].values();
  Operand in_place = matrix(s, x);
  in_place.same_as = 0;
  CHECK(run_at_offset(call, {matrix(s, x)}, {in_place}, 1)[0].values() == y);
  return y;
}

TEST_CASE("orthogonalize is the Newton-Schulz iteration, by both methods, whatever the scale") {
  Sample sample = sample_if_emulated(2);
  for (const Size s : kSizes)
    for (const bool gram : {false, true})
      for (const double scale : {1.0, 1e-4, 1e6}) {
        if (!sample.takes()) continue;
        INFO(s.rows << " x " << s.columns << ", gram " << gram << ", scale " << scale);
        const Values x = rounded(normal_values(s.rows * s.columns, 7, scale), DType::f32);
        require_close("y", orthogonalized_by_kernel(gram, s, x), orthogonalized(x, s),
                      {1e-5, 1e-5});
      }
}

TEST_CASE("orthogonalize iterates on the Gram matrix where that takes fewer FLOPs") {
  const OrthogonalizeAttrs gram, plain{.gram = false};
  CHECK_FALSE(iterates_on_gram(gram, {768, 768}));
  CHECK(iterates_on_gram(gram, {768, 3072}));
  CHECK(iterates_on_gram(gram, {3072, 768}));
  CHECK_FALSE(iterates_on_gram(plain, {768, 3072}));
  CHECK(newton_schulz_flops(plain, 10, 20) == 5 * (4 * 10 * 10 * 20 + 2 * 10 * 10 * 10));
  CHECK(newton_schulz_flops(gram, 40, 10) == 8 * 10 * 10 * 40 + 28 * 10 * 10 * 10);
}

TEST_CASE("a matrix of zeros stays one") {
  for (const bool gram : {false, true})
    CHECK(orthogonalized_by_kernel(gram, {3, 9}, Values(27)) == Values(27));
}

TEST_CASE("muon follows its definition over 20 steps, and writes the rounded copy") {
  Sample sample = sample_if_emulated(3);
  for (const Size s : {Size{16, 16}, {13, 70}, {66, 19}})
    for (const auto& [grad, copy] : {std::pair{DType::f32, DType::f32},
                                     {DType::f32, DType::bf16},
                                     {DType::bf16, DType::bf16},
                                     {DType::f16, DType::f16}}) {
      if (!sample.takes()) continue;
      INFO(s.rows << " x " << s.columns);
      const auto n = static_cast<size_t>(s.rows * s.columns);
      const double ratio = static_cast<double>(s.rows) / static_cast<double>(s.columns);
      const double scale = std::sqrt(std::max(1.0, ratio));
      const auto lr = static_cast<double>(0.01f), decay = static_cast<double>(0.1f);
      Values p = rounded(normal_values(s.rows * s.columns, 2, 0.1), DType::f32), m(n);
      Values exact = p, exact_m(n);
      for (int step = 0; step < 20; ++step) {
        const FlatStep f(step, s.rows * s.columns, grad, 0.9, 0.95);
        Call call{OpKind::muon_momentum, MuonMomentumAttrs{.momentum = 0.95}};
        call.state = &f.state;
        const auto moved =
            run_everywhere(call, {f.in()}, {flat(m), {Shape{s.rows * s.columns}, DType::f32}});
        m = moved[0].values();
        call.op = OpKind::orthogonalize;
        call.attrs = OrthogonalizeAttrs{};
        const Values y = run_everywhere(call, {matrix(s, moved[1].values())},
                                        {{Shape{s.rows, s.columns}, DType::f32}})[0]
                             .values();
        call.op = OpKind::muon;
        call.attrs = MuonAttrs{.weight_decay = 0.1f, .scale = static_cast<float>(scale)};
        const auto out = run_everywhere(
            call, {flat(y)},
            {flat(p), copy == DType::f32 ? absent() : Operand{Shape{s.rows * s.columns}, copy}});
        p = out[0].values();
        if (copy != DType::f32) CHECK(out[1].values() == rounded(p, copy));
        Values update(n);
        for (size_t i = 0; i < n; ++i) {
          exact_m[i] += (1 - 0.95) * (f.g(i) - exact_m[i]);
          update[i] = (1 - 0.95) * f.g(i) + 0.95 * exact_m[i];
        }
        update = orthogonalized(update, s);
        for (size_t i = 0; i < n; ++i)
          exact[i] = exact[i] * (1 - lr * decay) - lr * scale * update[i];
      }
      require_close("p", p, exact, {1e-5, 1e-6});
      require_close("m", m, exact_m, {1e-5, 1e-7});
    }
}

TEST_CASE("muon: skipped steps change nothing, and slices have the bits of the whole") {
  FlatStep s(2, 97, DType::bf16, 0.9, 0.95);
  const Values p = rounded(normal_values(97, 2), DType::f32),
               slot = rounded(uniform_values(97, 4, 0.01, 0.1), DType::f32);
  Call call{OpKind::muon_momentum, MuonMomentumAttrs{.momentum = 0.9}};
  call.state = &s.state;
  require_slices_agree(call, {s.in()}, {flat(slot), {Shape{97}, DType::f32}});
  Call step{OpKind::muon, MuonAttrs{.weight_decay = 0.1f, .scale = 1.5f}};
  step.state = &s.state;
  require_slices_agree(step, {flat(slot)}, {flat(p), {Shape{97}, DType::bf16}});
  s.state.skip = 1;
  const auto kept = run_everywhere(call, {s.in()}, {flat(slot), {Shape{97}, DType::f32}});
  CHECK(kept[0].values() == slot);
  CHECK(kept[1].values() == Values(97));
  CHECK(run_everywhere(step, {flat(slot)}, {flat(p), absent()})[0].values() == p);
}

TEST_CASE("adam beside muon moves by a learning rate of its own") {
  FlatStep s(0, 97, DType::f32, 0.9, 0.95);
  const Values p = rounded(normal_values(97, 2), DType::f32), zero(97);
  Call call{OpKind::adam, AdamAttrs{.beside_muon = true}};
  s.state.adam_lr = 0.25f;
  call.state = &s.state;
  const Values beside =
      run_everywhere(call, {s.in()}, {flat(p), flat(zero), flat(zero), absent()})[0].values();
  call.attrs = AdamAttrs{};
  CHECK(run_everywhere(call, {s.in()}, {flat(p), flat(zero), flat(zero), absent()})[0].values() !=
        beside);
  s.state.lr = 0.25f;
  CHECK(run_everywhere(call, {s.in()}, {flat(p), flat(zero), flat(zero), absent()})[0].values() ==
        beside);
}

}  // namespace
}  // namespace dstrain::parity
