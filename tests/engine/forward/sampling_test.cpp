// How the next token is chosen: by transformers' definitions, written down plainly.
#include "runtime/engine/forward/sampling.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace dstrain {
namespace {

std::vector<float> random_logits(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// Returns the probabilities that are drawn from, by definition.
std::vector<double> defined(std::vector<float> logits, const std::vector<int32_t>& text,
                            const Sampling& s) {
  for (size_t id = 0; id < logits.size(); ++id)
    if (std::ranges::find(text, static_cast<int32_t>(id)) != text.end()) {
      const auto by = static_cast<float>(s.repetition_penalty);
      logits[id] = logits[id] < 0 ? logits[id] * by : logits[id] / by;
    }
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (s.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(s.top_k)));
  std::vector<double> p(logits.size());
  const auto normalise = [&] {
    double sum = 0;
    for (size_t id : order) sum += p[id];
    for (size_t id = 0; id < p.size(); ++id)
      p[id] = std::ranges::find(order, id) != order.end() ? p[id] / sum : 0;
  };
  for (size_t id : order) p[id] = std::exp(double{logits[id]} / s.temperature);
  normalise();
  if (s.top_p < 1) {
    double sum = 0;
    size_t count = 0;
    while (sum < s.top_p) sum += p[order[count++]];
    order.resize(count);
    normalise();
  }
  std::erase_if(order, [&](size_t id) { return p[id] < s.min_p * p[order[0]]; });
  normalise();
  return p;
}

TEST_CASE("sampling: draws have the probabilities of the definitions") {
  const std::vector<float> logits = random_logits(40, 1);
  const std::vector<int32_t> text{3, 17, 3, 5};
  const std::vector<Sampling> all{
      {},
      {.temperature = 0.7},
      {.top_k = 5},
      {.top_p = 0.6},
      {.min_p = 0.2},
      {.repetition_penalty = 1.7},
      {.temperature = 1.3, .top_k = 20, .top_p = 0.8, .min_p = 0.1, .repetition_penalty = 0.6}};
  for (const Sampling& sampling : all) {
    CAPTURE(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p);
    const std::vector<double> expected = defined(logits, text, sampling);
    Sampler sampler(sampling);
    constexpr int kDraws = 20000;
    std::vector<int> counts(logits.size());
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<size_t>(sampler.choose(logits, text, 0, i))];
    for (size_t id = 0; id < counts.size(); ++id) {
      if (expected[id] == 0) CHECK(counts[id] == 0);
      CHECK(std::abs(counts[id] / double{kDraws} - expected[id]) < 0.015);
    }
  }
}

TEST_CASE("sampling: a draw is a function of seed, sample and number, in any vocabulary") {
  const std::vector<float> logits = random_logits(5000, 2);
  Sampler first({.seed = 7}), again({.seed = 7}), other({.seed = 8});
  int differ = 0, samples_differ = 0;
  for (int i = 0; i < 50; ++i) {
    const int32_t id = first.choose(logits, {}, 1, i);
    CHECK(again.choose(logits, {}, 1, i) == id);
    differ += other.choose(logits, {}, 1, i) != id;
    samples_differ += again.choose(logits, {}, 2, i) != id;
  }
  CHECK(differ > 25);
  CHECK(samples_differ > 25);
}

TEST_CASE("sampling: greedy takes the first of the largest logits, behind the penalty") {
  Sampler greedy({.temperature = 0}), penalised({.temperature = 0, .repetition_penalty = 2});
  const std::vector<float> logits{1, 3, 3, -1};
  CHECK(greedy.choose(logits, {}, 0, 0) == 1);
  CHECK(penalised.choose(logits, std::vector<int32_t>{1}, 0, 0) == 2);
  CHECK(penalised.choose(std::vector<float>{-1, -1.5f}, std::vector<int32_t>{0}, 0, 0) == 1);
}

TEST_CASE("sampling: equal logits keep the order of ids, and all of them can be drawn") {
  const std::vector<float> logits(700, 0.5f);
  Sampler sampler({.top_k = 3});
  for (int i = 0; i < 40; ++i) CHECK(sampler.choose(logits, {}, 0, i) < 3);
  Sampler all{Sampling{}};
  int32_t least = 700, most = 0;
  for (int i = 0; i < 300; ++i) {
    const int32_t id = all.choose(logits, {}, 0, i);
    least = std::min(least, id);
    most = std::max(most, id);
  }
  CHECK(least < 30);
  CHECK(most > 670);
}

}  // namespace
}  // namespace dstrain
