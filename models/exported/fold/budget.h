// FoldBudget: how much memory and time the evaluation of constants may take.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace dstrain::exported {

// Limits of an evaluation.
struct FoldLimits {
  int64_t bytes = 256'000'000;       // of all values that exist at once
  int64_t steps = int64_t{1} << 31;  // elements that are computed, in all
};

// A node that is left in the graph, because its value is not computed. It does not leave fold().
class LeftError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class FoldBudget {
 public:
  explicit FoldBudget(const FoldLimits& limits)
      : limits_(limits), live_(std::make_shared<int64_t>(0)) {}

  // Returns `bytes` zeros, which count until they are freed. Throws LeftError if there is no room for them.
  std::shared_ptr<char> allocate(int64_t bytes);
  // Counts elements that are computed. Throws LeftError if they are too many.
  void spend(int64_t steps);

 private:
  FoldLimits limits_;
  std::shared_ptr<int64_t> live_;  // values may outlive the budget
  int64_t spent_ = 0;
};

}  // namespace dstrain::exported
