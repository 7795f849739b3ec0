// Low-rank factors against their definition in f64, and the state that a skipped step leaves alone.
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/core/philox.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"
#include "tests/support/distance.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

struct MatrixSizes {
  int64_t n, k, rank;
};
constexpr MatrixSizes kMatrixSizes[] = {{1, 1, 1},   {7, 1, 1},    {1, 7, 1},    {7, 5, 3},
                                        {33, 64, 2}, {300, 70, 4}, {17, 241, 1}, {520, 513, 2}};

Values matrix_product(const Values& a, const Values& b, int64_t n, int64_t inner, int64_t k,
                      bool a_turned, bool b_turned) {
  Values c(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < inner; ++x)
        sum += a[static_cast<size_t>(a_turned ? x * n + i : i * inner + x)] *
               b[static_cast<size_t>(b_turned ? j * inner + x : x * k + j)];
      c[static_cast<size_t>(i * k + j)] = sum;
    }
  return c;
}

void check_near(const Values& got, const Values& expected, double tolerance) {
  CHECK(largest_distance(expected, got) <= tolerance * largest_magnitude(expected));
}

Values random_f32(int64_t n, uint64_t seed) {
  return rounded(normal_values(n, seed), DType::f32);
}

TEST_CASE("project_rows is b m^T, at every alignment and number of threads with the same bits") {
  Sample sample = sample_if_emulated(1);
  for (const auto& [n, k, rank] : kMatrixSizes) {
    if (!sample.takes()) continue;
    CAPTURE(n, k, rank);
    const Values m = random_f32(n * k, 1), b = random_f32(rank * k, 2);
    const auto p = run_everywhere({OpKind::project_rows},
                                  {{{n, k}, DType::f32, m}, {{rank, k}, DType::f32, b}},
                                  {{{rank, n}, DType::f32}});
    check_near(p[0].values(), matrix_product(b, m, rank, k, n, false, true), 2e-6);
  }
}

TEST_CASE("project_columns is p m") {
  Sample sample = sample_if_emulated(1);
  for (const auto& [n, k, rank] : kMatrixSizes) {
    if (!sample.takes()) continue;
    CAPTURE(n, k, rank);
    const Values m = random_f32(n * k, 1), p = random_f32(rank * n, 2);
    const auto b = run_everywhere({OpKind::project_columns},
                                  {{{n, k}, DType::f32, m}, {{rank, n}, DType::f32, p}},
                                  {{{rank, k}, DType::f32}});
    check_near(b[0].values(), matrix_product(p, m, rank, n, k, false, false), 5e-6);
  }
}

TEST_CASE("expand_factors is p^T b, and the error is what a rank has beyond its share of it") {
  Sample sample = sample_if_emulated(1);
  for (const auto& [n, k, rank] : kMatrixSizes)
    for (const bool with_error : {true, false}) {
      if (!sample.takes()) continue;
      CAPTURE(n, k, rank, with_error);
      const Values m = random_f32(n * k, 1), p = random_f32(rank * n, 2),
                   b = random_f32(rank * k, 3);
      Call call{OpKind::expand_factors};
      call.attrs = ExpandAttrs{.ranks = 3};
      std::vector<Operand> out{{{n, k}, DType::f32, {}, 2}};
      if (with_error) out.push_back({{n, k}, DType::f32});
      const auto got = run_everywhere(
          call, {{{rank, n}, DType::f32, p}, {{rank, k}, DType::f32, b}, {{n, k}, DType::f32, m}},
          out);
      const Values whole = matrix_product(p, b, n, rank, k, true, false);
      check_near(got[0].values(), whole, 1e-6);
      if (!with_error) continue;
      Values lost = m;
      for (size_t i = 0; i < lost.size(); ++i) lost[i] -= whole[i] / 3;
      check_near(got[1].values(), lost, 1e-6);
    }
}

Values gram_schmidt(int64_t rank, int64_t n, const Values& x, double eps = 0, bool revive = false) {
  Call call{OpKind::gram_schmidt};
  call.attrs = GramSchmidtAttrs{.eps = eps, .revive = revive};
  return run_everywhere(call, {{{rank, n}, DType::f32, x}}, {{{rank, n}, DType::f32, {}, 0}})[0]
      .values();
}

TEST_CASE("gram_schmidt makes rows of length 1 that are orthogonal and span the same") {
  for (const auto& [rank, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 7}, {3, 5}, {4, 257}, {8, 4097}}) {
    CAPTURE(rank, n);
    Values x = random_f32(rank * n, 5);
    for (size_t i = 0; i < static_cast<size_t>(n) && rank > 1; ++i)  // two rows that nearly agree
      x[static_cast<size_t>(n) + i] = x[i] + 1e-3 * x[static_cast<size_t>(n) + i];
    x = rounded(x, DType::f32);
    const Values y = gram_schmidt(rank, n, x);
    const Values unit = matrix_product(y, y, rank, n, rank, false, true);
    for (int64_t i = 0; i < rank; ++i)
      for (int64_t j = 0; j < rank; ++j)
        CHECK(std::fabs(unit[static_cast<size_t>(i * rank + j)] - (i == j ? 1 : 0)) < 2e-5);
    // Each row is a sum of what it has along the new ones.
    const Values along = matrix_product(x, y, rank, n, rank, false, true);
    check_near(x, matrix_product(along, y, rank, rank, n, false, false), 1e-5);
  }
}

TEST_CASE("gram_schmidt: rows of zeros and rows that depend on others, epsilon, and NaN") {
  const int64_t n = 6;
  Values x = random_f32(3 * n, 7);
  for (size_t i = 0; i < 6; ++i) x[6 + i] = -2 * x[i];
  const Values y = gram_schmidt(3, n, x);
  CHECK(Values(y.begin() + 6, y.begin() + 12) == Values(6));
  CHECK(std::fabs(y[12]) > 0);
  const Values revived = gram_schmidt(2, n, Values(12), 0, true);
  CHECK(revived == Values{1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0});
  CHECK(gram_schmidt(1, 2, {3, 4}, 5) == rounded({0.3, 0.4}, DType::f32));
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const Values spoilt = gram_schmidt(1, 3, {1, bad, 2}, 0, true);
    CHECK(std::isnan(spoilt[1]));
  }
}

TEST_CASE("random_factor is uniform on [-1, 1), other values after each update") {
  StepState state;
  state.applied_steps = 5;
  Call call{OpKind::random_factor};
  call.attrs = RandomFactorAttrs{.seed = 3, .stream = 9};
  call.state = &state;
  for (const int64_t n : {1, 7, 4097}) {
    Values expected;
    for (int64_t i = 0; i < n; ++i) {
      const auto block = static_cast<uint32_t>(i / 4);
      const uint32_t word = philox(stream_key(3, 9), {block, 0, 5, 0})[static_cast<size_t>(i % 4)];
      expected.push_back(std::ldexp(static_cast<double>(word >> 8), -23) - 1);
    }
    const Values x = run_everywhere(call, {}, {{{n}, DType::f32}})[0].values();
    CHECK(x == expected);
    state.applied_steps = 6;
    CHECK(run_everywhere(call, {}, {{{n}, DType::f32}})[0].values() != x);
    state.applied_steps = 5;
    if (n < 100) continue;
    double sum = 0, squares = 0;
    for (const double v : x) {
      sum += v;
      squares += v * v;
    }
    CHECK(std::fabs(sum / static_cast<double>(n)) < 0.03);
    CHECK(squares / static_cast<double>(n) == Approx(1.0 / 3).epsilon(0.05));
  }
}

TEST_CASE("errors are kept without the loss scale, and a skipped step keeps what was there") {
  for (const int64_t n : {1, 7, 4097}) {
    const Values x = random_f32(n, 1), before = random_f32(n, 2);
    StepState state;
    state.loss_scale = 8;
    Call call{OpKind::add_error};
    call.state = &state;
    Values expected = before;
    for (size_t i = 0; i < x.size(); ++i) expected[i] += 8 * x[i];
    CHECK(run_everywhere(call, {{{n}, DType::f32, x}}, {{{n}, DType::f32, before}})[0].values() ==
          rounded(expected, DType::f32));
    for (const bool unscale : {true, false})
      for (const int32_t skip : {0, 1}) {
        CAPTURE(n, unscale, skip);
        call.op = OpKind::commit_state;
        call.attrs = CommitAttrs{.unscale = unscale, .divisor = 3};
        state.skip = skip;
        Values kept = x;
        for (double& v : kept) v /= unscale ? 8 : 3;
        CHECK(run_at_offset(call, {{{n}, DType::f32, x}}, {{{n}, DType::f32, before}}, 1)[0]
                  .values() == (skip ? before : rounded(kept, DType::f32)));
      }
  }
}

}  // namespace
}  // namespace dstrain::parity
