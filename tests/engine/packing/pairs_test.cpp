// Training on samples that hold several pairs of answers, against the same pairs in samples of their own.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/engine/test_rank.h"
#include "tests/support/decoders.h"
#include "tests/support/distance.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

constexpr int64_t kTokens = 24, kIds = 13;

// An answer has some tokens of a prompt, which do not count, and others.
struct TestAnswer {
  int64_t prompt = 0, tokens = 0, seed = 0;
  int64_t length() const { return prompt + tokens; }
};
struct TestPair {
  TestAnswer chosen, rejected;
  int64_t width() const { return std::max(chosen.length(), rejected.length()); }
};
using PairSample = std::vector<TestPair>;

// Samples whose pairs are of different lengths, one of which fills its sample.
const std::vector<PairSample> kPacked{
    {{{2, 4, 1}, {2, 7, 2}}, {{1, 3, 3}, {1, 1, 4}}, {{3, 6, 5}, {3, 2, 6}}},
    {{{4, 20, 7}, {4, 9, 8}}}};

std::vector<PairSample> samples_of_their_own() {
  std::vector<PairSample> padded;
  for (const PairSample& sample : kPacked)
    for (const TestPair& pair : sample) padded.push_back({pair});
  return padded;
}

class PairSamples final : public Dataset {
 public:
  explicit PairSamples(std::vector<PairSample> samples, bool scores)
      : samples_(std::move(samples)), scores_(scores) {
    vocabulary_.size = kIds;
  }
  int64_t samples(Split) const override { return std::ssize(samples_); }
  void read(Split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    for (const InputTensor& input : inputs)
      for (int64_t s = 0; s < count; ++s) {
        const PairSample& sample = samples_[static_cast<size_t>(first + s)];
        const int64_t elements = input.tensor.elements() / count;
        if (input.role == InputRole::reference)
          fill_references(sample, elements, input.tensor.as<float>() + s * elements);
        else
          for (int64_t row = 0; row < 2; ++row)
            fill(sample, row, input.role,
                 input.tensor.as<int32_t>() + s * elements + row * kTokens);
      }
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  static void fill_references(const PairSample& sample, int64_t elements, float* to) {
    std::fill_n(to, elements, 0.0f);
    int64_t begin = 0;
    for (const TestPair& pair : sample) {
      to[begin] = -static_cast<float>(pair.chosen.seed);
      to[elements / 2 + begin] = -static_cast<float>(pair.rejected.seed) - 0.5f;
      begin += pair.width();
    }
  }
  void fill(const PairSample& sample, int64_t row, InputRole role, int32_t* to) const {
    int64_t at = 0;
    for (const TestPair& pair : sample) {
      const TestAnswer& answer = row == 0 ? pair.chosen : pair.rejected;
      std::mt19937_64 random(static_cast<uint64_t>(answer.seed));
      const int64_t begin = at;
      const auto id = [&random] { return static_cast<int32_t>(random() % uint64_t{kIds}); };
      for (int32_t now = id(); at < begin + answer.length(); ++at) {
        const int32_t next = id();
        to[at] = role == InputRole::token_ids ? now
                 : role == InputRole::labels  ? label(answer, at - begin, now, next)
                                              : static_cast<int32_t>(begin);
        now = next;
      }
      at = pad(begin + answer.length(), begin + pair.width(), role, to);
    }
    pad(at, kTokens, role, to);
  }
  int32_t label(const TestAnswer& answer, int64_t place, int32_t now, int32_t next) const {
    const bool last = place + 1 == answer.length();
    if (scores_) return last ? now : -1;
    return last || place + 1 < answer.prompt ? -1 : next;
  }
  static int64_t pad(int64_t begin, int64_t end, InputRole role, int32_t* to) {
    for (int64_t at = begin; at < end; ++at)
      to[at] = role == InputRole::token_ids ? 0
               : role == InputRole::labels  ? -1
                                            : static_cast<int32_t>(begin);
    return end;
  }

  std::vector<PairSample> samples_;
  bool scores_;
  Vocabulary vocabulary_;
};

ModelConfig tiny_llama(bool scores) {
  ModelConfig model = decoder("llama", {{"num_hidden_layers", int64_t{2}},
                                        {"num_key_value_heads", int64_t{2}},
                                        {"max_position_embeddings", int64_t{kTokens}},
                                        {"vocab_size", int64_t{kIds}},
                                        {"attention_dropout", 0.0}});
  model.set_gives_score(scores);
  return model;
}

struct FirstStep {
  double loss = 0;
  int64_t pairs = 0;
  std::vector<double> metrics;  // sums
  std::map<std::string, std::vector<float>> gradients;
};

FirstStep first_step(const Objective& objective, DType dtype,
                     const std::vector<PairSample>& samples, Packing packing) {
  const PairSamples data(samples, objective.scores_answers());
  Job job;
  job.model = tiny_llama(objective.scores_answers());
  job.dtype = job.wire_dtype = dtype;
  job.batch = {data.samples(Split::train), data.samples(Split::train), 1};
  job.gradient_clipping = 0;
  job.data.packing = packing;
  job.objective = objective;
  TestRank rank(job, data, 2);
  FirstStep result;
  result.loss = rank.step(0);
  result.pairs = rank.state.targets;
  const Program& program = rank.plans.train.program;
  for (const ProgramLoss& loss : program.losses)
    result.metrics.push_back(*rank.arenas.tensor(rank.plans.train, loss.sum).as<const double>());
  for (const Parameter& p : program.parameters) {
    const Tensor g = rank.arenas.tensor(rank.plans.train, p.gradient);
    std::vector<float>& values = result.gradients[p.name];
    values.resize(static_cast<size_t>(g.elements()));
    std::copy_n(g.as<float>(), values.size(), values.begin());
  }
  return result;
}

// Requires that gradients differ by at most `tolerance` of the largest value of their tensor.
void require_near(const FirstStep& packed, const FirstStep& padded, double tolerance) {
  CHECK(packed.pairs == padded.pairs);
  CHECK(packed.loss == Approx(padded.loss).epsilon(tolerance));
  REQUIRE(packed.metrics.size() == padded.metrics.size());
  for (size_t i = 0; i < padded.metrics.size(); ++i)
    CHECK(packed.metrics[i] == Approx(padded.metrics[i]).epsilon(tolerance).margin(tolerance));
  for (const auto& [name, expected] : padded.gradients) {
    INFO(name);
    const double largest = largest_magnitude(expected);
    CHECK(largest > 0);
    CHECK(largest_distance(expected, packed.gradients.at(name)) <= tolerance * largest);
  }
}

std::vector<Objective> objectives() {
  return {{.kind = ObjectiveKind::dpo, .beta = 0.3, .label_smoothing = 0.1},
          {.kind = ObjectiveKind::dpo, .loss_type = AnswerLoss::ipo, .beta = 0.2},
          {.kind = ObjectiveKind::dpo, .loss_type = AnswerLoss::hinge, .beta = 0.01},
          {.kind = ObjectiveKind::simpo, .beta = 2},
          {.kind = ObjectiveKind::orpo, .beta = 0.5},
          {.kind = ObjectiveKind::reward, .center_rewards_coefficient = 0.1}};
}

}  // namespace

TEST_CASE("a step of packed pairs has the loss, metrics and gradients of the same pairs padded") {
  for (const Objective& objective : objectives()) {
    CAPTURE(static_cast<int>(objective.kind), static_cast<int>(objective.loss_type));
    const FirstStep padded =
        first_step(objective, DType::f32, samples_of_their_own(), Packing::pad);
    CHECK(padded.pairs == 4);
    require_near(first_step(objective, DType::f32, kPacked, Packing::pack), padded, 1e-5);
    require_near(first_step(objective, DType::f32, samples_of_their_own(), Packing::pack), padded,
                 1e-5);
    require_near(first_step(objective, DType::bf16, kPacked, Packing::pack),
                 first_step(objective, DType::bf16, samples_of_their_own(), Packing::pad), 8e-2);
  }
}
