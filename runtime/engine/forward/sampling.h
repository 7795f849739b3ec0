// How the next token is chosen, in the order and by the definitions of transformers: the repetition penalty; and unless the
// choice is greedy, the temperature, the likeliest k, the likeliest that have probability p, and those near the likeliest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dstrain {

struct Sampling {
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // of the likeliest that together have this probability; 1: all
  double min_p = 0;          // of those with this part of the largest probability; 0: all
  double repetition_penalty =
      1.0;  // of tokens that the text has: positive logits are divided by it, others multiplied
  uint64_t seed = 1337;
};

// Chooses tokens. Keeps its memory from one call to the next.
class Sampler {
 public:
  explicit Sampler(const Sampling& sampling) : sampling_(sampling) {}

  // Returns the token behind `text`, of which `logits` are those of the next one. It is a function of these and of
  // (seed, sample, number): `sample` of a prompt's texts, token `number` of the new ones.
  int32_t choose(std::span<const float> logits, std::span<const int32_t> text, int64_t sample,
                 int64_t number);

 private:
  // Brings the `count` likeliest tokens to the front of order_, in their order; equal ones in that of ids.
  void sort_first(int64_t count);
  double weight_of(int32_t id) const;
  // Returns how many of the likeliest have together at least `least`, and their sum.
  int64_t count_with(double least, double& kept);

  Sampling sampling_;
  std::vector<float> scores_;
  std::vector<int32_t> order_;
  int64_t sorted_ = 0;
};

}  // namespace dstrain
