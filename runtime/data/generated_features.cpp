#include "runtime/data/generated_features.h"

#include <algorithm>
#include <cstring>

#include "runtime/core/philox.h"

namespace dstrain {
namespace {

constexpr int kLanes = 16;               // Philox blocks computed side by side
constexpr int64_t kStride = 4 * kLanes;  // values of these blocks
constexpr int64_t kFirstValidation = int64_t{1} << 40;

// Computes Philox blocks first .. first+kLanes-1 of a sample, round by round over all lanes, so that the
// compiler vectorizes the loops.
void philox_lanes(PhiloxKey key, uint64_t sample, uint32_t first, uint32_t (&c)[4][kLanes]) {
  for (int l = 0; l < kLanes; ++l) {
    c[0][l] = static_cast<uint32_t>(sample);
    c[1][l] = static_cast<uint32_t>(sample >> 32);
    c[2][l] = first + static_cast<uint32_t>(l);
    c[3][l] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kLanes; ++l) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c[0][l];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2][l];
      c[0][l] = static_cast<uint32_t>(p1 >> 32) ^ c[1][l] ^ key[0];
      c[1][l] = static_cast<uint32_t>(p1);
      c[2][l] = static_cast<uint32_t>(p0 >> 32) ^ c[3][l] ^ key[1];
      c[3][l] = static_cast<uint32_t>(p0);
    }
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

// Returns -10 + 20 u / 2^32, computed as 20 (u - 2^31) / 2^32, which rounds once.
float feature(uint32_t u) {
  return static_cast<float>(static_cast<double>(static_cast<int32_t>(u ^ 0x80000000u)) *
                            (20.0 / 4294967296.0));
}

}  // namespace

void GeneratedFeatures::fill(Split split, int64_t sample, float* to) const {
  const PhiloxKey key = {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)};
  const auto number =
      static_cast<uint64_t>(split == Split::validation ? sample + kFirstValidation : sample);
  uint32_t words[4][kLanes];
  float values[kStride];
  for (int64_t j = 0; j < elements_; j += kStride) {
    philox_lanes(key, number, static_cast<uint32_t>(j / 4), words);
    for (int l = 0; l < kLanes; ++l)
      for (int w = 0; w < 4; ++w) values[4 * l + w] = feature(words[w][l]);
    std::memcpy(to + j, values,
                static_cast<size_t>(std::min(kStride, elements_ - j)) * sizeof(float));
  }
}

}  // namespace dstrain
