// SampleOrder: which sample is at which place of the run (docs/formats.md, sample order). Random order is
// another permutation of the samples in every epoch, computed by a Feistel network over the next power of two
// (Luby and Rackoff 1988) that is repeated until its result is a sample ("cycle walking", Black and Rogaway
// 2002). Invariant: every sample once per epoch; a pure function of (seed, place).
#pragma once

#include <cstdint>

namespace dstrain {

class SampleOrder {
 public:
  // `samples` > 0, below 2^62.
  SampleOrder(int64_t samples, bool random, uint64_t seed);

  // Returns the sample at `place` (>= 0) of the sequence of all epochs.
  int64_t sample_at(int64_t place) const;

 private:
  uint64_t permute(uint64_t value, uint64_t key) const;

  int64_t samples_;
  bool random_;
  uint64_t seed_;
  int half_bits_;
};

}  // namespace dstrain
