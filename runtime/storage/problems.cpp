#include "runtime/storage/problems.h"

#include <fmt/format.h>

#include <algorithm>

namespace dstrain {

std::string listed(const std::vector<std::string>& problems) {
  constexpr size_t kMostShown = 5;
  const size_t shown = std::min(problems.size(), kMostShown);
  std::string text = fmt::format(
      "{}",
      fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), "\n  "));
  if (shown < problems.size()) text += fmt::format("\n  ... and {} more", problems.size() - shown);
  return text;
}

}  // namespace dstrain
