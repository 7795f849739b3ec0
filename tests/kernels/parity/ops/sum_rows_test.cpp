#include "runtime/ir/ops/row_blocks.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

TEST_CASE("sum_rows sums, written or accumulated") {
  struct Shapes {
    int64_t r, n;
  };
  for (DType dtype : kRunTypes)
    for (const Shapes& s : {Shapes{1, 1}, {1, 97}, {7, 16}, {65, 768}, {300, 201}})
      for (bool accumulate : {false, true}) {
        INFO(name_of(dtype) << " R " << s.r << " N " << s.n);
        const auto d_y = rounded(normal_values(s.r * s.n, 1), dtype);
        const auto before = rounded(normal_values(s.n, 2), DType::f32);
        Call call{OpKind::sum_rows};
        call.accumulate = accumulate;
        const auto out = run_everywhere(call, {{Shape{s.r, s.n}, dtype, d_y}},
                                        {{Shape{s.n}, DType::f32, before}});
        std::vector<double> expected = accumulate ? before : std::vector<double>(before.size());
        for (size_t i = 0; i < d_y.size(); ++i) expected[i % static_cast<size_t>(s.n)] += d_y[i];
        require_close("d_bias", out[0].values(), expected, {2e-6, 5e-6});
      }
}

TEST_CASE("sum_rows of pieces, added from their blocks, has the bits of the whole") {
  const int64_t n = 19;
  Sample sample = sample_if_emulated(1);
  for (const DType dtype : kRunTypes)
    for (const int64_t r : {100, 1000, 20000}) {
      if (!sample.takes()) continue;
      const auto d_y = rounded(normal_values(r * n, 1), dtype);
      const auto before = rounded(normal_values(n, 2), DType::f32);
      Call whole{OpKind::sum_rows};
      whole.accumulate = true;
      const auto expected =
          run_everywhere(whole, {{Shape{r, n}, dtype, d_y}}, {{Shape{n}, DType::f32, before}});
      const RowBlocks blocks(r);
      std::vector<double> sums;
      for (int64_t first = 0; first < r; first += 3 * blocks.block) {
        const int64_t count = std::min(3 * blocks.block, r - first);
        Call piece{OpKind::sum_rows, SumRowsAttrs{.block = blocks.block}};
        const std::vector<double> rows(d_y.begin() + first * n, d_y.begin() + (first + count) * n);
        const int64_t some = RowBlocks(count, blocks.block).count;
        const auto out =
            run_everywhere(piece, {{Shape{count, n}, dtype, rows}}, {{Shape{some, n}, DType::f32}});
        const auto values = out[0].values();
        sums.insert(sums.end(), values.begin(), values.end());
      }
      REQUIRE(sums.size() == static_cast<size_t>(blocks.count * n));
      Call all{OpKind::sum_rows, SumRowsAttrs{.of_blocks = true}};
      all.accumulate = true;
      const auto out = run_everywhere(all, {{Shape{blocks.count, n}, DType::f32, sums}},
                                      {{Shape{n}, DType::f32, before}});
      CHECK(out[0].values() == expected[0].values());
    }
}

TEST_CASE("sum_rows of a hundred thousand rows with an offset keeps six digits") {
  const int64_t r = 100000, n = 3;
  auto d_y = normal_values(r * n, 1);
  for (double& v : d_y) v += 1;
  d_y = rounded(d_y, DType::f32);
  const auto out =
      run_at_offset({OpKind::sum_rows, {}, 2}, {{Shape{r, n}, DType::f32, d_y}}, {{Shape{n}}}, 0);
  std::vector<double> expected(n);
  for (size_t i = 0; i < d_y.size(); ++i) expected[i % n] += d_y[i];
  require_close("d_bias", out[0].values(), expected, {1e-6, 0});
}

}  // namespace
}  // namespace dstrain::parity
