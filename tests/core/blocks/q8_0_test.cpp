// ggml's blocks of 8 bits.
#include "runtime/core/blocks/q8_0.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/core/dtype.h"

namespace dstrain {
namespace {

using Block = std::array<std::byte, kQ80Bytes>;

float scale_of(const Block& block) {
  f16 scale{};
  std::memcpy(&scale.bits, block.data(), sizeof scale.bits);
  return to_float(scale);
}
int code(const Block& block, size_t i) {
  return static_cast<int8_t>(block[2 + i]);
}

TEST_CASE("a block has its largest magnitude as 127, and halves are rounded away from zero") {
  std::array<float, kQ80Values> x{};
  x[0] = -127;
  x[1] = 2.5F;
  x[2] = -2.5F;
  x[3] = 0.49F;
  x[4] = 126.6F;
  Block block{};
  CHECK(pack_q8_0(x.data(), kQ80Values, block.data()));
  CHECK(scale_of(block) == 1);
  CHECK(code(block, 0) == -127);
  CHECK(code(block, 1) == 3);
  CHECK(code(block, 2) == -3);
  CHECK(code(block, 3) == 0);
  CHECK(code(block, 4) == 127);
  CHECK(code(block, 31) == 0);
}

TEST_CASE("codes follow from the scale in f32, which the file has in f16") {
  std::array<float, kQ80Values> x{};
  for (int i = 0; i < kQ80Values; ++i)
    x[static_cast<size_t>(i)] = static_cast<float>(i) / 31 - 0.3F;
  Block block{};
  CHECK(pack_q8_0(x.data(), kQ80Values, block.data()));
  const float d = x[31] / 127;
  CHECK(scale_of(block) == to_float(to_f16(d)));
  for (size_t i = 0; i < 32; ++i)
    CHECK(code(block, i) == static_cast<int>(std::round(x[i] * (1 / d))));
}

TEST_CASE("each block has a scale of its own, and one of zeros or of the least numbers is zeros") {
  std::vector<float> x(3 * kQ80Values);
  x[0] = 127;
  x[kQ80Values] = 1e-40F;
  x[2 * kQ80Values + 1] = 254;
  std::array<std::byte, 3 * kQ80Bytes> packed{};
  CHECK(pack_q8_0(x.data(), 3 * kQ80Values, packed.data()));
  std::array<Block, 3> blocks{};
  std::memcpy(blocks.data(), packed.data(), packed.size());
  CHECK(scale_of(blocks[0]) == 1);
  CHECK(scale_of(blocks[1]) == 0);
  CHECK(code(blocks[1], 0) == 0);
  CHECK(scale_of(blocks[2]) == 2);
  CHECK(code(blocks[2], 1) == 127);
}

TEST_CASE("values that are no numbers, or too large for a scale in f16, are told") {
  std::array<float, kQ80Values> x{};
  Block block{};
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1e7F}) {
    x[5] = bad;
    CHECK_FALSE(pack_q8_0(x.data(), kQ80Values, block.data()));
  }
  x[5] = 8e6F;
  CHECK(pack_q8_0(x.data(), kQ80Values, block.data()));
}

}  // namespace
}  // namespace dstrain
