// TokenDataset: samples of T tokens of one sequence, whose end is the validation part. Sample i of a part is its
// tokens i*T .. i*T+T, the last of which is a target only. The parts share no token. A model that wants features too
// gets generated ones, sample i of a part always the same.
#pragma once

#include <memory>
#include <optional>

#include "runtime/data/dataset.h"
#include "runtime/data/generated_features.h"
#include "runtime/data/sample_order.h"
#include "runtime/data/token_source.h"

namespace dstrain {

class TokenDataset : public Dataset {
 public:
  // Throws UserError if a part that `job` uses is too short for one sample, or has an id that is not below
  // job.model.vocabulary().
  TokenDataset(const Job& job, std::unique_ptr<TokenSource> source);

  int64_t samples(Split split) const override { return part(split).samples; }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override;
  const Vocabulary& vocabulary() const override { return source_->vocabulary(); }
  uint64_t fingerprint() const override;
  void check_unchanged() const override;
  std::string summary() const override;

 private:
  struct Part {
    int64_t begin = 0, tokens = 0, samples = 0;
    std::optional<SampleOrder> order;  // if there is a sample
  };

  const Part& part(Split split) const { return parts_[split == Split::validation]; }
  Part make_part(int64_t begin, int64_t tokens, bool random, uint64_t seed) const;
  void check_parts(const Job& job) const;
  void check_vocabulary(const Job& job);

  std::unique_ptr<TokenSource> source_;
  int64_t block_;
  std::optional<GeneratedFeatures> features_;
  mutable std::optional<uint64_t> fingerprint_;
  Part parts_[2];
};

}  // namespace dstrain
