#include "runtime/engine/forward/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/core/philox.h"

namespace dstrain {
namespace {

constexpr int64_t kFirstSorted = 256;  // most draws are among these

// Returns a number in [0, 1).
double uniform(uint64_t seed, int64_t sample, int64_t number) {
  const PhiloxBlock r = philox(stream_key(seed, kSamplingStream),
                               {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32),
                                static_cast<uint32_t>(sample), 0});
  return ((static_cast<uint64_t>(r[1]) << 32 | r[0]) >> 11) * 0x1p-53;
}

void penalize(std::span<float> scores, std::span<const int32_t> text, double penalty) {
  std::vector<int32_t> once(text.begin(), text.end());
  std::ranges::sort(once);
  once.erase(std::unique(once.begin(), once.end()), once.end());
  const auto by = static_cast<float>(penalty);
  for (const int32_t id : once) {
    float& score = scores[static_cast<size_t>(id)];
    score = score < 0 ? score * by : score / by;
  }
}

}  // namespace

void Sampler::sort_first(int64_t count) {
  count = std::min(count, static_cast<int64_t>(order_.size()));
  if (count <= sorted_) return;
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = scores_[static_cast<size_t>(a)], y = scores_[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto begin = order_.begin() + sorted_, end = order_.begin() + count;
  if (end != order_.end()) std::nth_element(begin, end, order_.end(), likelier);
  std::sort(begin, end, likelier);
  sorted_ = count;
}

double Sampler::weight_of(int32_t id) const {
  const auto best = scores_[static_cast<size_t>(order_[0])];
  return std::exp((static_cast<double>(scores_[static_cast<size_t>(id)]) - best) /
                  sampling_.temperature);
}

int64_t Sampler::count_with(double least, double& kept) {
  kept = 0;
  const auto all = static_cast<int64_t>(order_.size());
  for (int64_t i = 0; i < all; ++i) {
    if (kept >= least) return i;
    if (i == sorted_) sort_first(4 * sorted_);
    kept += weight_of(order_[static_cast<size_t>(i)]);
  }
  return all;
}

int32_t Sampler::choose(std::span<const float> logits, std::span<const int32_t> text,
                        int64_t sample, int64_t number) {
  scores_.assign(logits.begin(), logits.end());
  if (sampling_.repetition_penalty != 1) penalize(scores_, text, sampling_.repetition_penalty);
  if (sampling_.temperature == 0)
    return static_cast<int32_t>(std::ranges::max_element(scores_) - scores_.begin());
  order_.resize(scores_.size());
  std::iota(order_.begin(), order_.end(), 0);
  sorted_ = 0;
  sort_first(sampling_.top_k > 0 ? sampling_.top_k : kFirstSorted);
  if (sampling_.top_k > 0) order_.resize(static_cast<size_t>(sorted_));
  double kept = 0;
  for (const int32_t id : order_) kept += weight_of(id);
  if (sampling_.top_p < 1)
    order_.resize(static_cast<size_t>(count_with(sampling_.top_p * kept, kept)));
  if (sampling_.min_p > 0) {
    std::erase_if(order_, [&](int32_t id) { return weight_of(id) < sampling_.min_p; });
    sorted_ = std::min(sorted_, static_cast<int64_t>(order_.size()));
    kept = 0;
    for (const int32_t id : order_) kept += weight_of(id);
  }
  const double drawn = uniform(sampling_.seed, sample, number) * kept;
  double passed = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(order_.size()); ++i) {
    if (i == sorted_) sort_first(4 * sorted_);
    passed += weight_of(order_[static_cast<size_t>(i)]);
    if (drawn < passed) return order_[static_cast<size_t>(i)];
  }
  return order_.back();
}

}  // namespace dstrain
