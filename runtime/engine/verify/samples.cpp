// The samples of a verification.
#include <optional>
#include <span>
#include <utility>

#include "runtime/config/model/family.h"
#include "runtime/data/generated_dataset.h"
#include "runtime/data/generated_features.h"
#include "runtime/engine/verify/verified_rank.h"

namespace dstrain {
namespace {

constexpr int64_t kSamples = int64_t{1} << 40;

// Returns a number that looks random (splitmix64).
uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Token ids of the seed; labels are the ids that follow. A model that wants features too gets generated ones. Where samples
// hold several documents, a token in eight begins one.
class RandomTokens final : public Dataset {
 public:
  explicit RandomTokens(const Job& job) : seed_(mixed(job.seed)) {
    vocabulary_.size = job.model.vocabulary();
    if (job.model.family().input(InputRole::features) != nullptr)
      features_.emplace(job.seed, job.model.elements_of(InputRole::features));
  }
  int64_t samples(Split split) const override { return split == Split::train ? kSamples : 0; }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    for (const InputTensor& input : inputs)
      for (int64_t s = 0; s < count; ++s) read(split, first + s, s, count, input);
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  // Reads sample `sample` to place `s` of `count`.
  void read(Split split, int64_t sample, int64_t s, int64_t count, const InputTensor& input) const {
    const int64_t elements = input.tensor.elements() / count;
    if (input.role == InputRole::features)
      return features_->fill(split, sample, input.tensor.as<float>() + s * elements);
    int32_t* const values = input.tensor.as<int32_t>() + s * elements;
    const int64_t behind = input.role == InputRole::labels ? 1 : 0;
    int32_t document = 0;
    for (int64_t i = 0; i < elements; ++i) {
      const uint64_t number = number_of(sample, i + behind);
      if (input.role == InputRole::documents)
        values[i] = document = number >> 61 == 0 ? static_cast<int32_t>(i) : document;
      else
        values[i] = static_cast<int32_t>(number % static_cast<uint64_t>(vocabulary_.size));
    }
  }
  uint64_t number_of(int64_t sample, int64_t token) const {
    return mixed(seed_ + mixed(static_cast<uint64_t>(sample << 20 | token)));
  }

  uint64_t seed_;
  std::optional<GeneratedFeatures> features_;
  Vocabulary vocabulary_;
};

// The features of the model's family, without a validation.
class Features final : public Dataset {
 public:
  explicit Features(const Job& job) : data_(job) {}
  int64_t samples(Split split) const override {
    return split == Split::train ? data_.samples(split) : 0;
  }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    data_.read(split, first, count, inputs);
  }
  const Vocabulary& vocabulary() const override { return data_.vocabulary(); }

 private:
  GeneratedDataset data_;
};

class FoldedSamples final : public Dataset {
 public:
  FoldedSamples(std::unique_ptr<Dataset> data, const Job& job) : data_(std::move(data)) {
    vocabulary_.size = job.model.vocabulary();
  }
  int64_t samples(Split split) const override {
    return split == Split::train ? data_->samples(split) : 0;
  }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    data_->read(split, first, count, inputs);
    for (const InputTensor& input : inputs) {
      if (input.role != InputRole::token_ids && input.role != InputRole::labels) continue;
      const Tensor& ids = input.tensor;
      for (int32_t& id : std::span(ids.as<int32_t>(), static_cast<size_t>(ids.elements())))
        if (id >= 0) id %= static_cast<int32_t>(vocabulary_.size);
    }
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  uint64_t fingerprint() const override { return data_->fingerprint(); }

 private:
  std::unique_ptr<Dataset> data_;
  Vocabulary vocabulary_;
};

}  // namespace

std::unique_ptr<Dataset> made_up_samples(const Job& job) {
  if (job.model.family().reads_tokens()) return std::make_unique<RandomTokens>(job);
  return std::make_unique<Features>(job);
}

std::unique_ptr<Dataset> folded_samples(std::unique_ptr<Dataset> data, const Job& job) {
  return std::make_unique<FoldedSamples>(std::move(data), job);
}

}  // namespace dstrain
