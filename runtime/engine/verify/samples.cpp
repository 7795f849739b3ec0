// The samples of a verification.
#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/data/generated_dataset.h"
#include "runtime/data/generated_features.h"
#include "runtime/data/packing/reference_table.h"
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

bool is_of_teacher(InputRole role) {
  return role == InputRole::teacher_ids || role == InputRole::teacher_log_probs;
}

// Makes up what a teacher gives to the tokens of samples, whose labels are among the inputs: ids below `ids`.
void make_up_teacher(std::span<const InputTensor> inputs, int64_t ids) {
  const auto input = [&inputs](InputRole role) {
    const auto found = std::ranges::find(inputs, role, &InputTensor::role);
    return found == inputs.end() ? Tensor{} : found->tensor;
  };
  const Tensor to = input(InputRole::teacher_ids), log_probs = input(InputRole::teacher_log_probs);
  if (!to) return;
  const Tensor labels = input(InputRole::labels);
  const int64_t tokens = labels.elements(), k = log_probs.elements() / tokens;
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t label = labels.as<const int32_t>()[t];
    int32_t* const of_token = to.as<int32_t>() + t * (k + 1);
    of_token[0] = label;
    for (int64_t i = 0; i < k; ++i) {
      const uint64_t number = mixed(static_cast<uint64_t>(label) << 20 | static_cast<uint64_t>(i));
      of_token[i + 1] = label < 0 ? -1 : static_cast<int32_t>(number % static_cast<uint64_t>(ids));
      log_probs.as<float>()[t * k + i] = -1.0f - static_cast<float>(i) / 4;
    }
  }
}

// Token ids of the seed; labels are the ids that follow. A model that wants features too gets generated ones. Where samples
// hold several documents, a token in eight begins one.
class RandomTokens final : public Dataset {
 public:
  explicit RandomTokens(const Job& job)
      : seed_(mixed(job.seed)), rows_(job.objective.rows_per_sample()) {
    vocabulary_.size = job.model.vocabulary();
    if (job.model.family().input(InputRole::features) != nullptr)
      features_.emplace(job.seed, job.model.elements_of(InputRole::features));
  }
  int64_t samples(Split split) const override { return split == Split::train ? kSamples : 0; }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    for (const InputTensor& input : inputs)
      for (int64_t s = 0; s < count && !is_of_teacher(input.role); ++s)
        read(split, first + s, s, count, input);
    make_up_teacher(inputs, vocabulary_.size);
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  // Reads sample `sample` to place `s` of `count`.
  void read(Split split, int64_t sample, int64_t s, int64_t count, const InputTensor& input) const {
    const int64_t elements = input.tensor.elements() / count;
    if (input.role == InputRole::features)
      return features_->fill(split, sample, input.tensor.as<float>() + s * elements);
    if (input.role == InputRole::reference) {
      std::fill_n(input.tensor.as<float>() + s * elements, elements, 0.0f);
      return;
    }
    if (input.role == InputRole::desirable) {
      input.tensor.as<float>()[s] = static_cast<float>(number_of(sample, 0) & 1);
      return;
    }
    int32_t* const values = input.tensor.as<int32_t>() + s * elements;
    const int64_t behind = input.role == InputRole::labels ? 1 : 0;
    int64_t document = 0;
    for (int64_t i = 0; i < elements; ++i) {
      const uint64_t number = number_of(sample, i + behind);
      const int64_t place = i % (elements / rows_);
      if (number >> 61 == 0 || place == 0) document = place;
      if (input.role == InputRole::documents)
        values[i] = static_cast<int32_t>(document);
      else if (input.role == InputRole::positions)
        values[i] = static_cast<int32_t>(place - document);
      else if (input.role == InputRole::mask)
        values[i] = 1;
      else
        values[i] = static_cast<int32_t>(number % static_cast<uint64_t>(vocabulary_.size));
    }
  }
  uint64_t number_of(int64_t sample, int64_t token) const {
    return mixed(seed_ + mixed(static_cast<uint64_t>(sample << 20 | token)));
  }

  uint64_t seed_;
  int64_t rows_;  // of a sample
  std::optional<GeneratedFeatures> features_;
  Vocabulary vocabulary_;
};

// Samples as they are, without a validation.
class TrainingSamples final : public Dataset {
 public:
  explicit TrainingSamples(std::unique_ptr<Dataset> data) : data_(std::move(data)) {}
  int64_t samples(Split split) const override {
    return split == Split::train ? data_->samples(split) : 0;
  }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    data_->read(split, first, count, inputs);
  }
  const Vocabulary& vocabulary() const override { return data_->vocabulary(); }
  uint64_t fingerprint() const override { return data_->fingerprint(); }

 private:
  std::unique_ptr<Dataset> data_;
};

// The samples of a job's data for its small job, which has t of the T tokens of each: token i is token i T / t, it counts if
// one of those up to the next one does, and a document begins at the first one that it has.
class ShrunkSamples final : public Dataset {
 public:
  ShrunkSamples(std::unique_ptr<Dataset> data, const Job& job, const Job& small)
      : data_(std::move(data)),
        tokens_(job.rows_of(job.model.seq_len())),
        small_tokens_(job.rows_of(small.model.seq_len())) {
    vocabulary_.size = small.model.vocabulary();
    if (job.model.family().input(InputRole::features) == nullptr) return;
    data_features_ = job.model.elements_of(InputRole::features);
    features_.emplace(small.seed, small.model.elements_of(InputRole::features));
  }
  int64_t samples(Split split) const override {
    return split == Split::train ? data_->samples(split) : 0;
  }
  // Allocates what it reads, as steps of a verification may.
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    std::deque<std::vector<int32_t>> tokens;
    std::vector<float> features(static_cast<size_t>(count * data_features_)), references;
    std::vector<InputTensor> whole, small;
    std::ranges::copy_if(inputs, std::back_inserter(small),
                         [](const InputTensor& input) { return !is_of_teacher(input.role); });
    for (const InputTensor& input : small) {
      whole.push_back(input);
      if (input.role == InputRole::reference) {
        // Those of an answer belong to other places here, and are 0.
        const int64_t width = data_->references()->width();
        references.resize(static_cast<size_t>(count * width));
        whole.back().tensor = {references.data(), {count, width}, DType::f32};
        std::fill_n(input.tensor.as<float>(), input.tensor.elements(), 0.0f);
        continue;
      }
      if (is_of_objective(input.role)) continue;
      if (input.role == InputRole::features) {
        whole.back().tensor = {features.data(), {count, data_features_}, DType::f32};
        continue;
      }
      tokens.emplace_back(static_cast<size_t>(count * tokens_));
      whole.back().tensor = {tokens.back().data(), {count, tokens_}, DType::i32};
    }
    data_->read(split, first, count, whole);
    for (size_t i = 0; i < small.size(); ++i)
      for (int64_t s = 0; s < count; ++s)
        if (small[i].role == InputRole::features)
          features_->fill(split, first + s,
                          small[i].tensor.as<float>() + s * features_->elements());
        else if (!is_of_objective(small[i].role))
          shrink(small[i].role, whole[i].tensor.as<int32_t>() + s * tokens_,
                 small[i].tensor.as<int32_t>() + s * small_tokens_);
    make_up_teacher(inputs, vocabulary_.size);
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  uint64_t fingerprint() const override { return data_->fingerprint(); }

 private:
  // Makes the small sample of one of the data.
  void shrink(InputRole role, const int32_t* from, int32_t* to) const {
    for (int64_t i = 0; i < small_tokens_; ++i) {
      const int32_t* const begin = from + i * tokens_ / small_tokens_;
      const int32_t* const end = from + (i + 1) * tokens_ / small_tokens_;
      int32_t value = *begin;
      if (role == InputRole::documents)
        value = static_cast<int32_t>((int64_t{value} * small_tokens_ + tokens_ - 1) / tokens_);
      if (role == InputRole::labels)
        if (const auto* const counts = std::find_if(begin, end, [](int32_t x) { return x >= 0; });
            counts != end)
          value = *counts;
      const bool id = (role == InputRole::token_ids || role == InputRole::labels) && value >= 0;
      to[i] = id ? value % static_cast<int32_t>(vocabulary_.size) : value;
    }
  }

  std::unique_ptr<Dataset> data_;
  int64_t tokens_, small_tokens_;  // of a sample
  int64_t data_features_ = 0;      // of a sample of the data
  std::optional<GeneratedFeatures> features_;
  Vocabulary vocabulary_;
};

}  // namespace

std::unique_ptr<Dataset> made_up_samples(const Job& job) {
  if (job.model.family().reads_tokens()) return std::make_unique<RandomTokens>(job);
  check(!job.model.family().reads_arrays(), "arrays are not made up");
  return std::make_unique<TrainingSamples>(std::make_unique<GeneratedDataset>(job));
}

std::unique_ptr<Dataset> shrunk_samples(std::unique_ptr<Dataset> data, const Job& job,
                                        const Job& small) {
  if (job.model.family().reads_arrays()) return std::make_unique<TrainingSamples>(std::move(data));
  return std::make_unique<ShrunkSamples>(std::move(data), job, small);
}

}  // namespace dstrain
