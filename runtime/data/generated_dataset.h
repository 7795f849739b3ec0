// GeneratedDataset: features and labels for models that read no tokens (docs/formats.md, data files). Sample i is a pure
// function of (seed, i); validation uses the samples from 2^40 on.
#pragma once

#include "runtime/config/job.h"
#include "runtime/data/dataset.h"
#include "runtime/data/generated_features.h"

namespace dstrain {

class GeneratedDataset : public Dataset {
 public:
  // The job's model must have features and labels.
  explicit GeneratedDataset(const Job& job);

  int64_t samples(Split) const override { return int64_t{1} << 40; }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }  // none: size 0
  std::string summary() const override;

 private:
  uint64_t seed_;
  GeneratedFeatures features_;
  int64_t out_size_ = 0;
  Vocabulary vocabulary_;
};

}  // namespace dstrain
