#include "runtime/core/blocks/q8_0.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/core/dtype.h"

namespace dstrain {
namespace {

constexpr float kMostCode = 127;

bool pack_block(const float* x, std::byte* packed) {
  float most = 0;
  bool finite = true;
  for (int64_t i = 0; i < kQ80Values; ++i) {
    most = std::max(most, std::abs(x[i]));
    finite &= std::isfinite(x[i]);
  }
  const float d = most / kMostCode;
  // The least scales, whose inverse is inf, are 0 in f16.
  const float inverse = d > 0 && std::isfinite(1 / d) ? 1 / d : 0;
  const f16 scale = to_f16(d);
  if (!finite || !std::isfinite(to_float(scale))) return false;
  std::memcpy(packed, &scale.bits, sizeof scale.bits);
  for (int64_t i = 0; i < kQ80Values; ++i)
    packed[static_cast<int64_t>(sizeof scale.bits) + i] =
        static_cast<std::byte>(static_cast<int8_t>(std::round(x[i] * inverse)));
  return true;
}

}  // namespace

bool pack_q8_0(const float* x, int64_t values, std::byte* packed) {
  bool finite = true;
  for (int64_t i = 0; i < values / kQ80Values; ++i)
    finite &= pack_block(x + i * kQ80Values, packed + i * kQ80Bytes);
  return finite;
}

}  // namespace dstrain
