// Sample: chooses the cases that a long test runs. With the environment variable DSTRAIN_SAMPLE, a number that
// scripts/test.sh takes from the commit, a test runs some of its cases, and other ones if the number is another.
// Without the variable it runs all, or those of the number 0 where it always samples.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "runtime/core/philox.h"

namespace dstrain {

class Sample {
 public:
  // Takes one case of each `of` that follow one another, chosen by the number. Not by a stride, which would meet the
  // same choice of an inner loop again and again.
  explicit Sample(uint64_t of) : Sample(std::getenv("DSTRAIN_SAMPLE") ? of : 1, Always{}) {}

  // The same, and without the variable too.
  static Sample always(uint64_t of) { return Sample(of, Always{}); }

  // Whether the next case is taken: the same on every rank that asks as often.
  bool takes() {
    const uint64_t at = next_++;
    return at % of_ == mix64(mix64(seed_) ^ (at / of_)) % of_;
  }

 private:
  struct Always {};
  Sample(uint64_t of, Always) : of_(of) {
    if (const char* number = std::getenv("DSTRAIN_SAMPLE"))
      seed_ = std::strtoull(number, nullptr, 10);
  }

  uint64_t of_, seed_ = 0, next_ = 0;
};

}  // namespace dstrain
