#include "runtime/plan/chunks/moved_together.h"

#include <algorithm>

namespace dstrain {
namespace {

bool shares(const Program& program, const std::vector<BufferId>& a,
            const std::vector<BufferId>& b) {
  return std::ranges::any_of(a, [&](BufferId one) {
    return one != kNone && std::ranges::any_of(b, [&](BufferId other) {
             return other != kNone && program.root(one) == program.root(other);
           });
  });
}

// Returns whether the order of the two matters.
bool conflict(const Program& program, const Instruction& a, const Instruction& b) {
  return shares(program, a.writes, b.writes) || shares(program, a.writes, b.reads) ||
         shares(program, a.reads, b.writes);
}

}  // namespace

std::optional<MovedTogether> moved_together(const Program& program,
                                            const std::vector<size_t>& together,
                                            const std::set<BufferId>& also,
                                            const std::set<size_t>& gone) {
  const auto at = [&](size_t i) -> const Instruction& { return program.instructions[i]; };
  MovedTogether moved{together.front(), together.back(), {}, {}};
  const std::vector<BufferId> needed(also.begin(), also.end());
  std::vector<size_t> later;  // what must run behind what it conflicts with
  for (size_t i = moved.last + 1; i-- > moved.first;) {
    if (gone.contains(i)) continue;
    if (std::ranges::binary_search(together, i)) {
      later.push_back(i);
      continue;
    }
    const bool waited_for =
        shares(program, at(i).writes, needed) ||
        std::ranges::any_of(later, [&](size_t k) { return conflict(program, at(i), at(k)); });
    (waited_for ? moved.before : moved.after).push_back(i);
    if (waited_for) later.push_back(i);
  }
  std::ranges::reverse(moved.before);
  std::ranges::reverse(moved.after);
  for (const size_t i : moved.before)
    for (size_t k = moved.first; k < i; ++k)
      if (!gone.contains(k) && !std::ranges::binary_search(moved.before, k) &&
          conflict(program, at(k), at(i)))
        return std::nullopt;
  return moved;
}

}  // namespace dstrain
