#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

// The definition in scalar code: blocks of 4096 elements, 32 sums per block, then a tree.
double by_definition(const std::vector<double>& x) {
  double total = 0;
  for (size_t block = 0; block < x.size(); block += 4096) {
    double chain[32] = {};
    for (size_t i = block; i < std::min(x.size(), block + 4096); ++i)
      chain[(i - block) % 32] += x[i] * x[i];
    for (size_t half = 16; half > 0; half /= 2)
      for (size_t k = 0; k < half; ++k) chain[k] += chain[k + half];
    total += chain[0];
  }
  return total;
}

TEST_CASE("sum_squares has the bits of its definition at every size, start and thread count") {
  for (DType dtype : kRunTypes)
    for (int64_t n : {1, 31, 32, 33, 97, 4095, 4096, 4097, 100001}) {
      const auto x = rounded(normal_values(n, 1, 100), dtype);
      const auto s =
          run_everywhere({OpKind::sum_squares}, {{Shape{n}, dtype, x}}, {{Shape{1}, DType::f64}});
      CHECK(s[0].values()[0] == by_definition(x));
    }
}

TEST_CASE("sum_squares of nothing is zero, of extremes does not overflow, of NaN is NaN") {
  const auto of = [](const std::vector<double>& x) {
    return run_at_offset({OpKind::sum_squares},
                         {{Shape{static_cast<int64_t>(x.size())}, DType::f32, x}},
                         {{Shape{1}, DType::f64}}, 0)[0]
        .values()[0];
  };
  CHECK(of({}) == 0);
  CHECK(of({3e38, 3e38}) == Approx(1.8e77));
  CHECK(of({1e-30}) == Approx(1e-60).margin(0));
  CHECK(std::isnan(of({1, std::nan("")})));
  CHECK(of({1, -HUGE_VAL}) == HUGE_VAL);
}

}  // namespace
}  // namespace dstrain::parity
