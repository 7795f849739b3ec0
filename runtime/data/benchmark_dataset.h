// BenchmarkDataset: the endless made-up samples of the benchmark model (contract: model.type
// "benchmark"). Stands on core/philox.h and OpenMP. Invariant: sample i is a pure function of (seed,
// i); validation takes samples from 2^40 on.
#pragma once

#include "runtime/data/dataset.h"

namespace dstrain {

class BenchmarkDataset : public Dataset {
 public:
  explicit BenchmarkDataset(const Job& job);

  int64_t samples(Split) const override { return int64_t{1} << 40; }
  void read(Split split, int64_t first, int64_t count, Tensor inputs,
            Tensor targets) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }  // none: size 0
  std::string summary() const override;

 private:
  uint64_t seed_;
  int64_t in_size_, out_size_;
  Vocabulary vocabulary_;
};

}  // namespace dstrain
