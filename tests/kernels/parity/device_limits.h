// DeviceLimits: how large the tests of products and attention may be on the device under test, and how it
// computes in 16 bits.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "runtime/core/dtype.h"

namespace dstrain::parity {

struct DeviceLimits {
  std::vector<int> threads;  // numbers of threads to test
  int64_t budget;            // the most multiply-adds that a case may have
  bool matrix_f16;           // f16 is multiplied directly, not widened to f32

  // Returns whether attention rounds the operands between its products to the run's dtype.
  bool rounds_between(DType dtype) const {
    return dtype == DType::bf16 || (matrix_f16 && dtype == DType::f16);
  }
};

// The emulated device and sanitizers are slow, so their budgets are smaller. The environment variable
// DSTRAIN_PARITY_BUDGET sets another budget (for compute-sanitizer on a GPU).
inline const DeviceLimits& device_limits() {
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
  static const DeviceLimits device{{1}, budget, true};
#else
  static const DeviceLimits device{{1, 2, 3, 7}, budget, false};
#endif
  return device;
}

}  // namespace dstrain::parity
