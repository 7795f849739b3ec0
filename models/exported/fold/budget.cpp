#include "models/exported/fold/budget.h"

#include <fmt/core.h>

#include <algorithm>

namespace dstrain::exported {

std::shared_ptr<char> FoldBudget::allocate(int64_t bytes) {
  if (bytes > limits_.bytes - *live_)
    throw LeftError(fmt::format("its value takes {} bytes, and {} of the {} for constants are left",
                                bytes, limits_.bytes - *live_, limits_.bytes));
  char* const data = new char[static_cast<size_t>(std::max<int64_t>(bytes, 1))]();
  *live_ += bytes;
  return {data, [live = live_, bytes](const char* p) {
            *live -= bytes;
            delete[] p;
          }};
}

void FoldBudget::spend(int64_t steps) {
  if (steps > limits_.steps - spent_)
    throw LeftError(fmt::format("its value takes {} steps, and {} of the {} for constants are left",
                                steps, limits_.steps - spent_, limits_.steps));
  spent_ += steps;
}

}  // namespace dstrain::exported
