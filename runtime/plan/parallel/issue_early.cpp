#include <algorithm>
#include <vector>

#include "runtime/ir/rule.h"
#include "runtime/plan/parallel/parallel.h"

namespace dstrain {
namespace {

class EarlyPass {
 public:
  EarlyPass(Program& program, const Place& place) : program_(program) {
    for (const Axis axis : {Axis::sequence, Axis::tensor})
      if (place.ranks_in(axis) > 1) channels_.push_back(channel_of(place, axis));
  }

  void run() {
    std::vector<Instruction>& list = program_.instructions;
    const auto begin = list.begin();
    for (size_t i = 0; i < list.size(); ++i) {
      if (!is_collective(list[i].op) || std::ranges::count(channels_, list[i].channel) == 0)
        continue;
      size_t to = i;
      while (to > 0 && family_of(list[to].op) != OpFamily::product &&
             may_pass(list[i], list[to - 1]))
        --to;
      const auto at = [&](size_t index) { return begin + static_cast<std::ptrdiff_t>(index); };
      std::rotate(at(to), at(i), at(i + 1));
    }
  }

 private:
  bool may_pass(const Instruction& collective, const Instruction& before) const {
    return !is_posted(before.op) && before.when == collective.when &&
           before.phase == collective.phase && before.chunk == collective.chunk &&
           !share(collective.reads, before.writes) && !share(collective.writes, before.reads) &&
           !share(collective.writes, before.writes);
  }
  // Returns whether two lists name buffers in the same memory.
  bool share(const std::vector<BufferId>& a, const std::vector<BufferId>& b) const {
    return std::ranges::any_of(a, [&](BufferId x) {
      return x != kNone && std::ranges::any_of(b, [&](BufferId y) {
               return y != kNone && program_.root(x) == program_.root(y);
             });
    });
  }

  Program& program_;
  std::vector<int32_t> channels_;
};

}  // namespace

void issue_early(Program& program, const Place& place) {
  if (place.ranks_in(kLayerAxes) > 1) EarlyPass(program, place).run();
}

}  // namespace dstrain
