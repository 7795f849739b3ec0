// What the parity cases of products and attention may ask of the device that their program is linked for.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "runtime/core/dtype.h"

namespace dstrain::parity {

struct Limits {
  std::vector<int> threads;  // numbers of threads that a kernel may be given
  int64_t budget;            // multiply-adds that a case may cost
  bool matrix_f16;           // f16 is multiplied as it is, not widened

  // Whether what one product hands to the next is rounded to the run's dtype.
  bool rounds_between(DType dtype) const {
    return dtype == DType::bf16 || (matrix_f16 && dtype == DType::f16);
  }
};

// Every CUDA thread is emulated, and sanitizers look at every access: that takes its time. The environment
// variable DSTRAIN_PARITY_BUDGET sets another budget (compute-sanitizer on a GPU).
inline const Limits& limits() {
#if !defined(DSTRAIN_PARITY_EMULATED)
  constexpr int64_t kBudget = int64_t{1} << 40;
#elif defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int64_t kBudget = 20'000;
#else
  constexpr int64_t kBudget = 1'250'000;
#endif
  const char* asked = std::getenv("DSTRAIN_PARITY_BUDGET");
  const int64_t budget = asked ? std::atoll(asked) : kBudget;
#if defined(DSTRAIN_PARITY_EMULATED) || defined(DSTRAIN_PARITY_CUDA)
  static const Limits device{{1}, budget, true};
#else
  static const Limits device{{1, 2, 3, 7}, budget, false};
#endif
  return device;
}

}  // namespace dstrain::parity
