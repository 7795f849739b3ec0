#include "runtime/config/axes_text.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace dstrain {

std::string axes_text(const AxisRanks& ranks) {
  std::string text;
  for (const auto& [count, what] :
       {std::pair<int, std::string_view>{ranks.stages, "pipeline stages"},
        {ranks.data, "data-parallel ranks"},
        {ranks.sequence, "sequence ranks"},
        {ranks.tensor, "tensor ranks"}})
    if (count > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", count, what);
  return text;
}

}  // namespace dstrain
