// SampleOrder: which sample stands at which place of the run. Random order is a fresh permutation of
// the samples in every epoch, computed and not stored: a Feistel network over the next power of two
// (Luby and Rackoff 1988), walked until it lands inside ("cycle walking", Black and Rogaway 2002).
// Stands on core/philox.h. Invariant: every sample once per epoch; a pure function of (seed, place).
#pragma once

#include <cstdint>

namespace dstrain {

class SampleOrder {
 public:
  // `samples` > 0, below 2^62.
  SampleOrder(int64_t samples, bool random, uint64_t seed);

  // The sample at `place` (>= 0) of the endless sequence of epochs.
  int64_t sample_at(int64_t place) const;

 private:
  uint64_t permute(uint64_t value, uint64_t key) const;

  int64_t samples_;
  bool random_;
  uint64_t seed_;
  int half_bits_;
};

}  // namespace dstrain
