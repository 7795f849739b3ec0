#include "runtime/storage/mismatches.h"

#include <fmt/format.h>

#include <algorithm>

namespace dstrain {

std::string listed(const std::vector<std::string>& mismatches) {
  constexpr size_t kMostShown = 5;
  const size_t shown = std::min(mismatches.size(), kMostShown);
  std::string text =
      fmt::format("{}", fmt::join(mismatches.begin(),
                                  mismatches.begin() + static_cast<std::ptrdiff_t>(shown), "\n  "));
  if (shown < mismatches.size())
    text += fmt::format("\n  ... and {} more", mismatches.size() - shown);
  return text;
}

}  // namespace dstrain
