// Training on samples that hold several documents, against the same documents in samples of their own.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "tests/engine/test_rank.h"
#include "tests/support/distance.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

constexpr int64_t kTokens = 24, kIds = 13;

struct TestDocument {
  int64_t length, seed;
  bool counts = true;  // its tokens are targets
};
using TestSample = std::vector<TestDocument>;

// Two samples of whole documents, of one token and of a whole sample too.
const std::vector<TestSample> kPackedSamples{{{9, 1}, {1, 2}, {3, 3}, {11, 4}}, {{24, 5}}};

// Samples of documents, which padding follows. A token's target is the one that follows in its document.
class DocumentSamples final : public Dataset {
 public:
  explicit DocumentSamples(std::vector<TestSample> samples) : samples_(std::move(samples)) {
    vocabulary_.size = kIds;
  }
  int64_t samples(Split) const override { return static_cast<int64_t>(samples_.size()); }
  void read(Split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    for (int64_t s = 0; s < count; ++s)
      for (const InputTensor& input : inputs)
        fill(samples_[static_cast<size_t>(first + s)], input.role,
             input.tensor.as<int32_t>() + s * kTokens);
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  static void fill(const TestSample& sample, InputRole role, int32_t* to) {
    int32_t row = 0;
    for (const TestDocument& d : sample) {
      std::mt19937_64 random(static_cast<uint64_t>(d.seed));
      const int32_t begin = row;
      const auto id = [&random] { return static_cast<int32_t>(random() % uint64_t{kIds}); };
      for (int32_t now = id(); row < begin + d.length; ++row) {
        const int32_t next = id(), target = row + 1 < begin + d.length && d.counts ? next : -1;
        to[row] = role == InputRole::token_ids ? now : role == InputRole::labels ? target : begin;
        now = next;
      }
    }
    for (const int32_t begin = row; row < kTokens; ++row)
      to[row] = role == InputRole::token_ids ? 0 : role == InputRole::labels ? -1 : begin;
  }

  std::vector<TestSample> samples_;
  Vocabulary vocabulary_;
};

ModelConfig tiny_llama() {
  ModelConfig model(*model_registry().find("llama"));
  for (const auto& [name, size] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"num_hidden_layers", 2},
                                                              {"hidden_size", 24},
                                                              {"intermediate_size", 21},
                                                              {"num_attention_heads", 4},
                                                              {"num_key_value_heads", 2},
                                                              {"max_position_embeddings", kTokens},
                                                              {"vocab_size", kIds}})
    model.set(name, size);
  model.set("initializer_range", 0.2);
  return model;
}

ModelConfig tiny_mistral() {
  ModelConfig model(*model_registry().find("mistral"));
  const ModelConfig llama = tiny_llama();
  for (const char* name :
       {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "vocab_size"})
    model.set(name, llama.integer(name));
  model.set("initializer_range", 0.2);
  model.set("sliding_window", int64_t{5});
  return model;
}

ModelConfig tiny_gpt2() {
  ModelConfig model(*model_registry().find("gpt2"));
  for (const auto& [name, size] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"n_layer", 2},
                                                              {"n_embd", 24},
                                                              {"n_head", 3},
                                                              {"n_positions", kTokens + 2},
                                                              {"vocab_size", kIds}})
    model.set(name, size);
  for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) model.set(name, 0.0);
  model.set("initializer_range", 0.2);
  model.set_seq_len(kTokens);
  return model;
}

std::vector<ModelConfig> tiny_models() {
  return {tiny_llama(), tiny_mistral(), tiny_gpt2(),
          GptLite{.n_layer = 2,
                  .n_embd = 24,
                  .n_head = 3,
                  .block_size = kTokens,
                  .dropout = 0,
                  .gelu = true,
                  .vocab_size = kIds}};
}

Job document_job(const ModelConfig& model, DType dtype, int64_t samples, Packing packing) {
  Job job;
  job.model = model;
  job.dtype = job.wire_dtype = dtype;
  job.batch = {samples, samples, 1};
  job.gradient_clipping = 0;
  job.data.packing = packing;
  return job;
}

// The results of a first step.
struct FirstStep {
  double loss = 0;
  int64_t targets = 0;
  std::map<std::string, std::vector<float>> gradients;
};

FirstStep first_step(const ModelConfig& model, DType dtype, const std::vector<TestSample>& samples,
                     Packing packing) {
  const DocumentSamples data(samples);
  TestRank rank(document_job(model, dtype, data.samples(Split::train), packing), data, 2);
  FirstStep result;
  result.loss = rank.step(0);
  result.targets = rank.state.targets;
  for (const Parameter& p : rank.plans.train.program.parameters) {
    const Tensor g = rank.arenas.tensor(rank.plans.train, p.gradient);
    std::vector<float>& values = result.gradients[p.name];
    values.resize(static_cast<size_t>(g.elements()));
    std::copy_n(g.as<float>(), values.size(), values.begin());
  }
  return result;
}

// Each document of the packed samples in a sample of its own.
std::vector<TestSample> samples_of_their_own() {
  std::vector<TestSample> padded;
  for (const TestSample& sample : kPackedSamples)
    for (const TestDocument& d : sample) padded.push_back({d});
  return padded;
}

// Requires that gradients differ by at most `tolerance` of the largest value of their tensor.
void require_near(const FirstStep& packed, const FirstStep& padded, double tolerance) {
  CHECK(packed.targets == padded.targets);
  CHECK(packed.loss == Approx(padded.loss).epsilon(tolerance));
  for (const auto& [name, expected] : padded.gradients) {
    INFO(name);
    const double largest = largest_magnitude(expected);
    CHECK(largest > 0);
    CHECK(largest_distance(expected, packed.gradients.at(name)) <= tolerance * largest);
  }
}

}  // namespace

TEST_CASE("a step of packed documents has the loss and gradients of the same documents padded") {
  for (const ModelConfig& model : tiny_models()) {
    INFO(model.family().type);
    const FirstStep padded = first_step(model, DType::f32, samples_of_their_own(), Packing::none);
    CHECK(padded.targets == 8 + 0 + 2 + 10 + 23);
    require_near(first_step(model, DType::f32, kPackedSamples, Packing::pack), padded, 1e-5);
    // Documents in padded samples change nothing, and without documents packed samples learn something else.
    require_near(first_step(model, DType::f32, samples_of_their_own(), Packing::pack), padded,
                 1e-5);
    const FirstStep mixed = first_step(model, DType::f32, kPackedSamples, Packing::none);
    CHECK(std::abs(mixed.loss - padded.loss) > 1e-3 * padded.loss);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      INFO(name_of(dtype));
      require_near(first_step(model, dtype, kPackedSamples, Packing::pack),
                   first_step(model, dtype, samples_of_their_own(), Packing::none),
                   dtype == DType::bf16 ? 4e-2 : 5e-3);
    }
  }
}

TEST_CASE("a document changes no bit of the loss and the gradients of others in its sample") {
  for (const ModelConfig& model : tiny_models())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      INFO(model.family().type << " " << name_of(dtype));
      // The third document alone counts; the others change.
      const auto loss_beside = [&](int64_t before, int64_t after) {
        return first_step(model, dtype,
                          {{{9, before, false}, {1, before, false}, {8, 3}, {6, after, false}}},
                          Packing::pack);
      };
      const FirstStep first = loss_beside(1, 4), others = loss_beside(7, 8);
      CHECK(first.targets == 7);
      CHECK(first.loss == others.loss);
      for (const auto& [name, gradient] : first.gradients) {
        INFO(name);
        CHECK(gradient == others.gradients.at(name));
      }
    }
}
