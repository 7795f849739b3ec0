#include "runtime/core/blocks/weight_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);

// Between two levels, the largest value that belongs to the lower one, exactly.
constexpr std::array<double, 15> nf4_limits() {
  std::array<double, 15> limits{};
  for (size_t i = 0; i < limits.size(); ++i)
    limits[i] = (static_cast<double>(kNf4Levels[i]) + static_cast<double>(kNf4Levels[i + 1])) / 2;
  return limits;
}
constexpr std::array<double, 15> kNf4Limits = nf4_limits();

int8_t int8_code(float x, float scale) {
  // A scale among the denormal numbers is inexact: a quotient may be larger than 127.
  return static_cast<int8_t>(std::clamp(std::nearbyint(x / scale), -127.0f, 127.0f));
}

uint8_t nf4_code(float x, float scale) {
  const double share = x / scale;
  return static_cast<uint8_t>(std::ranges::lower_bound(kNf4Limits, share) - kNf4Limits.begin());
}

// Packs a block of 64 values; `codes` is where its codes begin. Returns false if a value is not finite.
bool pack_block(BlockFormat format, const float* x, std::byte* scale_to, std::byte* codes) {
  float largest = 0;
  for (int64_t i = 0; i < kWeightBlock; ++i) {
    if (!std::isfinite(x[i])) return false;
    largest = std::max(largest, std::fabs(x[i]));
  }
  const bool int8 = format == BlockFormat::int8;
  const float scale = int8 ? largest / 127.0f : largest;
  std::memcpy(scale_to, &scale, sizeof scale);
  if (int8) {
    for (int64_t i = 0; i < kWeightBlock; ++i)
      codes[i] = static_cast<std::byte>(scale > 0 ? int8_code(x[i], scale) : 0);
    return true;
  }
  const auto code = [&](int64_t i) {
    return nf4_code(scale > 0 ? x[i] : 0.0f, scale > 0 ? scale : 1.0f);
  };
  for (int64_t i = 0; i < kWeightBlock; i += 2)
    codes[i / 2] = static_cast<std::byte>(code(i) | code(i + 1) << 4);
  return true;
}

int64_t code_bytes(BlockFormat format, int64_t values) {
  return format == BlockFormat::int8 ? values : values / 2;
}

}  // namespace

bool pack_groups(BlockFormat format, const float* x, int64_t values, std::byte* packed) {
  check(format != BlockFormat::none, "values are packed in blocks of no format");
  for (int64_t first = 0; first < values; first += kWeightGroup, packed += group_bytes(format)) {
    for (int64_t b = 0; b < kWeightGroup / kWeightBlock; ++b) {
      float block[kWeightBlock] = {};
      const int64_t at = first + b * kWeightBlock;
      const int64_t count = std::clamp(values - at, int64_t{0}, kWeightBlock);
      if (count > 0) std::copy_n(x + at, count, block);
      if (!pack_block(format, block, packed + b * kScaleBytes,
                      packed + kWeightScales + code_bytes(format, b * kWeightBlock)))
        return false;
    }
  }
  return true;
}

void unpack_groups(BlockFormat format, const std::byte* packed, int64_t values, float* y) {
  check(format != BlockFormat::none, "values are unpacked from blocks of no format");
  for (int64_t i = 0; i < values; ++i) {
    const std::byte* const group = packed + i / kWeightGroup * group_bytes(format);
    const int64_t of_group = i % kWeightGroup;
    float scale;
    std::memcpy(&scale, group + of_group / kWeightBlock * kScaleBytes, sizeof scale);
    const auto code = static_cast<uint8_t>(group[kWeightScales + code_bytes(format, of_group)]);
    if (format == BlockFormat::int8)
      y[i] = static_cast<float>(static_cast<int8_t>(code)) * scale;
    else
      y[i] = kNf4Levels[code >> (i % 2 * 4) & 15] * scale;
  }
}

}  // namespace dstrain
