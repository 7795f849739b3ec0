#include "kernels/cpu/products/convert.h"

#include <limits>

#include "tests/kernels/parity/run_kernel.h"

namespace dstrain {
namespace {

constexpr int64_t kHalves = 65536;

TEST_CASE("every 16-bit pattern widens to its value and narrows back to itself") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    parity::Guarded from(Shape{kHalves}, dtype, 1), back(Shape{kHalves}, dtype, 3);
    for (int64_t i = 0; i < kHalves; ++i)
      from.tensor().as<uint16_t>()[i] = static_cast<uint16_t>(i);
    parity::Guarded wide(Shape{kHalves}, DType::f32, 1);
    widen({from.data(), dtype, kHalves}, 1, kHalves, wide.tensor().as<float>(), kHalves, 2);
    parity::require_close("widened", wide.values(), from.values(), {});
    finish(wide.tensor().as<float>(), kHalves, 1, kHalves, nullptr, false,
           {back.data(), dtype, kHalves}, 2);
    parity::require_close("narrowed", back.values(), from.values(), {});
    REQUIRE((wide.guards_intact() && back.guards_intact()));
  }
}

TEST_CASE("narrowing rounds to nearest even wherever an element stands") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (int64_t columns = 1; columns < 40; ++columns) {
      const auto values = parity::uniform_values(2 * columns, 7, -70000, 70000);
      const parity::Guarded from({2, columns}, DType::f32, values, 1);
      parity::Guarded to({2, columns}, dtype, 1);
      finish(from.tensor().as<float>(), columns, 2, columns, nullptr, false,
             {to.data(), dtype, columns}, 1);
      const parity::Guarded expected({2, columns}, dtype, values);
      parity::require_close("narrowed", to.values(), expected.values(), {});
      REQUIRE(to.guards_intact());
    }
    const std::vector<double> halves = {1 + 0x1p-9, 1 + 3 * 0x1p-9, 1 + 0x1p-12, 1 + 3 * 0x1p-12};
    std::vector<double> ties;
    for (int i = 0; i < 8; ++i) ties.insert(ties.end(), halves.begin(), halves.end());
    const parity::Guarded from(Shape{32}, DType::f32, ties), expected(Shape{32}, dtype, ties);
    parity::Guarded to(Shape{32}, dtype);
    finish(from.tensor().as<float>(), 32, 1, 32, nullptr, false, {to.data(), dtype, 32}, 1);
    parity::require_same_bits("ties", to, expected);
  }
}

TEST_CASE("relu keeps NaN and drops what is below zero, after the bias") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const parity::Guarded from(Shape{5}, DType::f32, {kNan, -2, 2, 0, -0.5});
  const parity::Guarded bias(Shape{5}, DType::f32, {0, 1, 1, -1, 1});
  parity::Guarded to(Shape{5}, DType::f32);
  finish(from.tensor().as<float>(), 5, 1, 5, bias.data(), true, {to.data(), DType::f32, 5}, 1);
  parity::require_close("relu", to.values(), {kNan, 0, 3, 0, 0.5}, {});
}

}  // namespace
}  // namespace dstrain
