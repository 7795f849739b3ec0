#include <catch2/catch.hpp>
#include <vector>

#include "runtime/engine/verify/verified_rank.h"
#include "tests/support/array_model.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

constexpr int64_t kTokens = 64, kSmallTokens = 16;

// Samples of a document of 48 tokens that do not count, of which the last 4 do, and one of the rest; ids count up.
class MaskedDocuments final : public Dataset {
 public:
  MaskedDocuments() { vocabulary_.size = 1000; }
  int64_t samples(Split) const override { return 10; }
  void read(Split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    for (const InputTensor& input : inputs)
      for (int64_t i = 0; i < count * kTokens; ++i) {
        const int64_t at = i % kTokens;
        const auto id = static_cast<int32_t>(first * 100 + at);
        input.tensor.as<int32_t>()[i] = input.role == InputRole::documents   ? (at < 50 ? 0 : 50)
                                        : input.role == InputRole::token_ids ? id
                                        : at >= 45 && at < 49                ? id + 1
                                                                             : -100;
      }
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

Job job_of_tokens(int64_t tokens, int64_t vocabulary) {
  Job job;
  job.model = GptLite{.block_size = tokens, .vocab_size = vocabulary};
  return job;
}

std::vector<int32_t> read(const Dataset& data, InputRole role, int64_t first, int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count * kSmallTokens));
  const InputTensor input{"input", role, {values.data(), {count, kSmallTokens}, DType::i32}};
  data.read(Split::train, first, count, {&input, 1});
  return values;
}

}  // namespace

TEST_CASE("shrunk samples: masks and documents shrink with the tokens") {
  const auto data = shrunk_samples(std::make_unique<MaskedDocuments>(),
                                   job_of_tokens(kTokens, 1000), job_of_tokens(kSmallTokens, 97));
  CHECK(data->samples(Split::train) == 10);
  CHECK(data->samples(Split::validation) == 0);
  CHECK(data->vocabulary().size == 97);
  const std::vector<int32_t> ids = read(*data, InputRole::token_ids, 1, 2);
  const std::vector<int32_t> labels = read(*data, InputRole::labels, 1, 1);
  const std::vector<int32_t> documents = read(*data, InputRole::documents, 0, 1);
  for (int64_t i = 0; i < kSmallTokens; ++i) {
    CAPTURE(i);
    const auto at = static_cast<size_t>(i);
    CHECK(ids[at] == (100 + 4 * i) % 97);
    // Tokens 44 to 51 of 64, of which 45 to 48 count, are tokens 11 and 12 of 16.
    CHECK(labels[at] == (i == 11 ? (100 + 46) % 97 : i == 12 ? (100 + 49) % 97 : -100));
    // A document that begins at token 50 begins at token 52, which is the first one that the small sample has.
    CHECK(documents[at] == (i < 13 ? 0 : 13));
  }
}

TEST_CASE("shrunk samples: those that are small already stay, with ids modulo the vocabulary") {
  class Ids final : public Dataset {
   public:
    int64_t samples(Split) const override { return 1; }
    void read(Split, int64_t, int64_t, std::span<const InputTensor> inputs) const override {
      for (int64_t i = 0; i < kSmallTokens; ++i)
        inputs[0].tensor.as<int32_t>()[i] = i == 3 ? -1 : static_cast<int32_t>(i);
    }
    const Vocabulary& vocabulary() const override { return vocabulary_; }

   private:
    Vocabulary vocabulary_;
  };
  const auto data = shrunk_samples(std::make_unique<Ids>(), job_of_tokens(kSmallTokens, 1000),
                                   job_of_tokens(kSmallTokens, 5));
  const std::vector<int32_t> labels = read(*data, InputRole::labels, 0, 1);
  for (int64_t i = 0; i < kSmallTokens; ++i)
    CHECK(labels[static_cast<size_t>(i)] == (i == 3 ? -1 : i % 5));
}

TEST_CASE("samples of arrays are those of the data, and not made up") {
  class Arrays final : public Dataset {
   public:
    int64_t samples(Split) const override { return 7; }
    void read(Split, int64_t first, int64_t, std::span<const InputTensor> inputs) const override {
      inputs[0].tensor.as<int32_t>()[0] = static_cast<int32_t>(100 + first);
    }
    const Vocabulary& vocabulary() const override { return vocabulary_; }
    uint64_t fingerprint() const override { return 5; }

   private:
    Vocabulary vocabulary_;
  };
  Job job;
  job.model = ModelConfig(array_family());
  CHECK_THROWS_WITH(made_up_samples(job), Catch::Contains("arrays are not made up"));
  const auto data = shrunk_samples(std::make_unique<Arrays>(), job, job);
  CHECK(data->samples(Split::train) == 7);
  CHECK(data->samples(Split::validation) == 0);
  CHECK(data->fingerprint() == 5);
  int32_t value = 0;
  const InputTensor y{"y", InputRole::array, {&value, {1}, DType::i32}};
  data->read(Split::train, 3, 1, {&y, 1});
  CHECK(value == 103);
}

}  // namespace dstrain
