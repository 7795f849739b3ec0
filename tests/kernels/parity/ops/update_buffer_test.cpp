#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

TEST_CASE("update_buffer keeps a share of the values and adds one of the sum, unless skipped") {
  StepState state;
  for (const int64_t n : {1, 7, 97, 4097})
    for (const int32_t skip : {0, 1}) {
      CAPTURE(n, skip);
      state.skip = skip;
      const auto sum = rounded(normal_values(n, 1, 30), DType::f32);
      const auto before = rounded(normal_values(n, 2), DType::f32);
      Call call{OpKind::update_buffer};
      call.attrs = UpdateBufferAttrs{.keep = 0.9f, .share = 0.1f};
      call.state = &state;
      const auto got =
          run_everywhere(call, {{Shape{n}, DType::f32, sum}}, {{Shape{n}, DType::f32, before}})[0]
              .values();
      if (skip) {
        CHECK(got == before);
        continue;
      }
      std::vector<double> expected = before, allowed;
      for (size_t i = 0; i < sum.size(); ++i) {
        const double kept = static_cast<double>(0.9f) * before[i];
        const double added = static_cast<double>(0.1f) * sum[i];
        expected[i] = kept + added;
        allowed.push_back(0x1p-24 * (2 * std::fabs(kept) + 2 * std::fabs(added)));
      }
      require_within("buffer", got, expected, allowed);
    }
}

TEST_CASE("update_buffer begins with the sum in the first update alone, where it is told to") {
  constexpr int64_t n = 97;
  const auto sum = rounded(normal_values(n, 1), DType::f32);
  const auto before = rounded(normal_values(n, 2), DType::f32);
  const auto updated = [&](bool begins_with_sum, int64_t applied_steps, int32_t skip) {
    StepState state;
    state.applied_steps = applied_steps;
    state.skip = skip;
    Call call{OpKind::update_buffer};
    call.attrs = UpdateBufferAttrs{.keep = 0.9f, .share = 0.1f, .begins_with_sum = begins_with_sum};
    call.state = &state;
    return run_everywhere(call, {{Shape{n}, DType::f32, sum}}, {{Shape{n}, DType::f32, before}})[0]
        .values();
  };
  CHECK(updated(true, 0, 0) == sum);
  CHECK(updated(true, 0, 1) == before);
  CHECK(updated(true, 1, 0) == updated(false, 0, 0));
}

TEST_CASE("update_buffer: elements do not depend on their neighbours") {
  StepState state;
  Call call{OpKind::update_buffer};
  call.attrs = UpdateBufferAttrs{.keep = 0.99f, .share = 0.003f};
  call.state = &state;
  require_slices_agree(call, {{Shape{64}, DType::f32, normal_values(64, 1)}},
                       {{Shape{64}, DType::f32, normal_values(64, 2)}});
}

}  // namespace
}  // namespace dstrain::parity
