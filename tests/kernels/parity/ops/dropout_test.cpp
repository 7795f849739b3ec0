#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

struct Sizes {
  int64_t samples, seq_len, columns;
};
const Sizes kSizes[] = {{1, 1, 1}, {2, 3, 97}, {3, 5, 16}, {2, 1, 129}, {2, 50, 300}};

StepState state_with(int64_t first_sample) {
  StepState state;
  state.seed = 0x123456789abcdefull;
  state.first_sample = first_sample;
  return state;
}

// Returns dropout(h) by the scalar rule of runtime/core/philox.h.
std::vector<double> dropped(const std::vector<double>& h, const Sizes& s, float p, uint32_t site,
                            const StepState& state, int64_t sample_offset) {
  const DropoutRule rule(p);
  const PhiloxKey key = stream_key(state.seed, kDropoutStream + site);
  std::vector<double> y(h.size());
  for (size_t i = 0; i < h.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / s.columns,
               column = static_cast<int64_t>(i) % s.columns;
    const uint64_t sample =
        static_cast<uint64_t>(state.first_sample + sample_offset + row / s.seq_len);
    const uint64_t element = static_cast<uint64_t>(row % s.seq_len * s.columns + column);
    const bool kept = dropout_bits(key, sample, element) >= rule.threshold;
    y[i] = kept ? h[i] * static_cast<double>(rule.scale) : 0;
  }
  return y;
}

TEST_CASE("a dropout that rounds to one keeps one element of 65536, and no number is lost") {
  for (const float p : {0.9999923f, 0.9999925f, 0.99999f, 0.99999994f, 1.0f}) {
    INFO(p);
    const DropoutRule rule(p);
    CHECK(rule.threshold <= 65535);
    CHECK(rule.scale <= 65536);
    const StepState state = state_with(0);
    const Sizes s{4, 1, 32768};
    const auto h = rounded(normal_values(s.samples * s.columns, 2), DType::f32);
    Call call{OpKind::dropout_grad};
    call.attrs = DropoutAttrs{.dropout = p, .site = 9, .seq_len = s.seq_len};
    call.state = &state;
    const Shape shape{s.samples, s.columns};
    const auto d_h = run_everywhere(call, {{shape, DType::f32, h}}, {{shape, DType::f32}});
    require_close("dropout_grad", d_h[0].values(), dropped(h, s, p, 9, state, 0), {0, 0});
  }
}

TEST_CASE("add_dropout and dropout_grad drop exactly the elements of the scalar rule") {
  // The sample's number uses more than 32 bits of the Philox counter.
  for (int64_t first : {int64_t{5}, int64_t{0x1'0000'0003}})
    for (DType dtype : kRunTypes)
      for (const Sizes& s : kSizes)
        for (float p : {0.0f, 0.1f, 0.5f}) {
          INFO(name_of(dtype) << " columns " << s.columns << " p " << p);
          const StepState state = state_with(first);
          const int64_t r = s.samples * s.seq_len, c = s.columns;
          const auto x = rounded(normal_values(r * c, 1), dtype);
          const auto h = rounded(normal_values(r * c, 2), dtype);
          Call call{OpKind::add_dropout};
          call.attrs = DropoutAttrs{.dropout = p, .site = 9, .seq_len = s.seq_len};
          call.state = &state;
          call.sample_offset = 7;
          auto expected = dropped(h, s, p, 9, state, 7);
          const Operand hidden{Shape{r, c}, dtype, h}, out{Shape{r, c}, dtype};
          call.op = OpKind::dropout_grad;
          const auto d_h = run_everywhere(call, {hidden}, {out});
          require_close("dropout_grad", d_h[0].values(), expected, tolerance_of(dtype));
          for (size_t i = 0; i < x.size(); ++i) expected[i] += x[i];
          call.op = OpKind::add_dropout;
          const auto y = run_everywhere(call, {{Shape{r, c}, dtype, x}, hidden}, {out});
          require_close("add_dropout", y[0].values(), expected, tolerance_of(dtype));
        }
}

TEST_CASE("dropout drops its share, and a dropped infinity leaves nothing behind") {
  const Sizes s{1, 100, 1000};
  const StepState state = state_with(0);
  Call call{OpKind::dropout_grad};
  call.attrs = DropoutAttrs{.dropout = 0.25f, .seq_len = s.seq_len};
  call.state = &state;
  const int64_t n = s.seq_len * s.columns;
  const std::vector<double> infinite(static_cast<size_t>(n), HUGE_VAL);
  const auto y = run_at_offset(call, {{Shape{s.seq_len, s.columns}, DType::f32, infinite}},
                               {{Shape{s.seq_len, s.columns}}}, 0)[0]
                     .values();
  const auto zeros = std::count(y.begin(), y.end(), 0.0);
  CHECK(zeros + std::count(y.begin(), y.end(), HUGE_VAL) == n);
  CHECK(static_cast<double>(zeros) / static_cast<double>(n) == Approx(0.25).margin(0.006));
}

TEST_CASE("another site, seed or sample drops other elements") {
  const Sizes s{1, 8, 64};
  const auto mask = [&](uint32_t site, uint64_t seed, int64_t sample) {
    StepState state = state_with(sample);
    state.seed = seed;
    Call call{OpKind::dropout_grad};
    call.attrs = DropoutAttrs{.dropout = 0.5f, .site = site, .seq_len = s.seq_len};
    call.state = &state;
    return run_at_offset(call, {{Shape{8, 64}, DType::f32, std::vector<double>(512, 1)}},
                         {{Shape{8, 64}}}, 0)[0]
        .raw();
  };
  const std::string base = mask(1, 1, 1);
  CHECK(base == mask(1, 1, 1));
  CHECK(base != mask(2, 1, 1));
  CHECK(base != mask(1, 2, 1));
  CHECK(base != mask(1, 1, 2));
}

}  // namespace
}  // namespace dstrain::parity
