#include "runtime/data/sample_order.h"

#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain {
namespace {

// Luby-Rackoff needs four rounds for large halves; those of small data have only a few bits.
constexpr int kRounds = 8;

}  // namespace

SampleOrder::SampleOrder(int64_t samples, bool random, uint64_t seed)
    : samples_(samples), random_(random), seed_(seed), half_bits_(1) {
  check(samples > 0 && samples < int64_t{1} << 62, "an order of {} samples", samples);
  while (uint64_t{1} << (2 * half_bits_) < static_cast<uint64_t>(samples)) ++half_bits_;
}

uint64_t SampleOrder::permute(uint64_t value, uint64_t key) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t mixed =
        left ^ (mix64(key ^ mix64(right << 8 | static_cast<uint64_t>(round))) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

int64_t SampleOrder::sample_at(int64_t place) const {
  const int64_t epoch = place / samples_, index = place % samples_;
  if (!random_) return index;
  const PhiloxKey words = stream_key(seed_, kOrderStream + static_cast<uint64_t>(epoch));
  const uint64_t key = uint64_t{words[1]} << 32 | words[0];
  // The loop ends, because repeating a permutation returns to its start, which is below `samples_`.
  auto value = static_cast<uint64_t>(index);
  do value = permute(value, key);
  while (value >= static_cast<uint64_t>(samples_));
  return static_cast<int64_t>(value);
}

}  // namespace dstrain
