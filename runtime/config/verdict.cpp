#include "runtime/config/verdict.h"

#include <algorithm>

namespace dstrain {

std::string_view name_of(State state) {
  constexpr std::string_view names[] = {"honoured", "no_effect", "refused",
                                        "not_yet",  "unknown",   "error"};
  return names[static_cast<int>(state)];
}

bool has_errors(const std::vector<Verdict>& verdicts) {
  return std::ranges::any_of(verdicts, [](const Verdict& v) { return is_error(v.state); });
}

std::string Verdict::text() const {
  if (way_on.empty()) return message;
  return message.empty() ? way_on : message + "; " + way_on;
}

}  // namespace dstrain
