#include "runtime/core/convert_floats.h"

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/core/error.h"

using namespace dstrain;

TEST_CASE("floats are widened exactly and narrowed to nearest") {
  std::vector<float> wide{1, -0.3f, 1.00390625f, 65504, 0, 3e-6f}, back(6);
  const Tensor from{wide.data(), {6}, DType::f32}, again{back.data(), {6}, DType::f32};
  std::vector<uint16_t> bits(6), others(6);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor narrow{bits.data(), {6}, dtype};
    convert_floats(from, narrow);
    convert_floats(narrow, again);
    for (size_t i = 0; i < 6; ++i) {
      const uint16_t expected = dtype == DType::bf16 ? to_bf16(wide[i]).bits : to_f16(wide[i]).bits;
      CHECK(bits[i] == expected);
      CHECK(back[i] == (dtype == DType::bf16 ? to_float(bf16{expected}) : to_float(f16{expected})));
    }
    convert_floats(narrow, {others.data(), {6}, dtype});
    CHECK(others == bits);
  }
}

TEST_CASE("a conversion of other types or sizes is an internal error") {
  std::vector<float> values(4);
  const Tensor four{values.data(), {4}, DType::f32};
  CHECK_THROWS_AS(convert_floats(four, {values.data(), {3}, DType::bf16}), InternalError);
  CHECK_THROWS_AS(convert_floats(four, {values.data(), {4}, DType::i32}), InternalError);
}
