#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

// Every 16-bit pattern of `dtype` except NaN, and the midpoints between neighbours, which test the rounding.
std::vector<double> telling_values(DType dtype) {
  std::vector<double> values;
  double last = std::nan("");
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const double x = dtype == DType::bf16 ? to_float(bf16{b}) : to_float(f16{b});
    if (std::isnan(x)) continue;
    values.push_back(x);
    if (std::isfinite(x) && std::isfinite(last)) values.push_back((x + last) / 2);
    last = x;
  }
  for (double x : {65519.99, 65520.0, 65536.0, 3.4e38, 1e-8, 2.9e-8, 3.1e-8, 1e-40, 1e-45})
    values.push_back(x), values.push_back(-x);
  return rounded(values, DType::f32);
}

TEST_CASE("cast rounds to nearest even between every pair of dtypes") {
  for (DType from : kRunTypes)
    for (DType to : kRunTypes) {
      INFO(name_of(from) << " to " << name_of(to));
      const auto x = rounded(telling_values(is_16bit(to) ? to : DType::f16), from);
      const auto n = static_cast<int64_t>(x.size());
      const auto y = run_everywhere({OpKind::cast}, {{Shape{n}, from, x}}, {{Shape{n}, to}});
      CHECK(y[0].values() == rounded(x, to));
      require_slices_agree({OpKind::cast}, {{Shape{97}, from, normal_values(97, 1)}},
                           {{Shape{97}, to}});
    }
}

TEST_CASE("cast keeps NaN a NaN") {
  for (DType from : kRunTypes)
    for (DType to : kRunTypes)
      CHECK(std::isnan(run_at_offset({OpKind::cast}, {{Shape{1}, from, {std::nan("")}}},
                                     {{Shape{1}, to, {0}}}, 1)[0]
                           .values()[0]));
}

TEST_CASE("accumulate copies first and adds then, in f32, rounding the sum once") {
  for (DType from : kRunTypes)
    for (DType to : kRunTypes)
      for (int64_t n : {1, 97, 40000}) {
        const auto x = rounded(normal_values(n, 1), from);
        const auto before = rounded(normal_values(n, 2), to);
        Call call{OpKind::accumulate};
        const std::vector<Operand> in{{Shape{n}, from, x}}, out{{Shape{n}, to, before}};
        CHECK(run_everywhere(call, in, out)[0].values() == rounded(x, to));
        call.accumulate = true;
        std::vector<double> sum(x);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
        CHECK(run_everywhere(call, in, out)[0].values() == rounded(rounded(sum, DType::f32), to));
        if (n == 97) require_slices_agree(call, in, out);
      }
}

TEST_CASE("round_wire leaves what the wire's dtype can hold") {
  for (DType wire : kRunTypes) {
    const auto x = telling_values(is_16bit(wire) ? wire : DType::bf16);
    const auto n = static_cast<int64_t>(x.size());
    Call call{OpKind::round_wire};
    call.attrs = WireAttrs{.wire = wire};
    const std::vector<Operand> in{{Shape{n}, DType::f32, x}};
    const auto y = run_everywhere(call, in, {{Shape{n}, DType::f32, {}, 0}});
    CHECK(y[0].values() == rounded(x, wire));
  }
}

}  // namespace
}  // namespace dstrain::parity
