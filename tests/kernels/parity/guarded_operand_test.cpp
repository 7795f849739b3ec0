#include "tests/kernels/parity/guarded_operand.h"

namespace dstrain::parity {
namespace {

TEST_CASE(
    "the guards of an operand notice any byte that is written beside it, and none of its own") {
  for (int64_t offset : {0, 3}) {
    Guarded operand(Shape{5}, DType::bf16, offset);
    auto* const bytes = static_cast<unsigned char*>(operand.data());
    const int64_t before = 256 + offset * 2, after = operand.bytes() + 256;
    for (int64_t i = -before; i < after; ++i) {
      bytes[i] ^= 1;
      INFO("byte " << i << " of an operand of " << operand.bytes());
      CHECK(operand.guards_intact() == (i >= 0 && i < operand.bytes()));
      bytes[i] ^= 1;
    }
    CHECK(operand.guards_intact());
  }
}

}  // namespace
}  // namespace dstrain::parity
