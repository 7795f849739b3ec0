// GeneratedFeatures: features that are made from the seed (docs/formats.md, data files). Those of a sample are a pure
// function of the seed and the sample's number; validation uses the numbers from 2^40 on.
#pragma once

#include <cstdint>

#include "runtime/data/dataset.h"

namespace dstrain {

class GeneratedFeatures {
 public:
  GeneratedFeatures(uint64_t seed, int64_t elements) : seed_(seed), elements_(elements) {}

  int64_t elements() const { return elements_; }  // of a sample
  // Writes the features of sample `sample` of `split` to `to`.
  void fill(Split split, int64_t sample, float* to) const;

 private:
  uint64_t seed_;
  int64_t elements_;
};

}  // namespace dstrain
