#include "runtime/plan/placement/copies.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// How the tasks use a buffer.
struct Uses {
  std::set<std::pair<Phase, int32_t>> kinds{};  // phase and chunk
  bool received = false;  // from the beginning of the task in front of the first one
  bool operator<(const Uses& other) const {
    return std::tie(kinds, received) < std::tie(other.kinds, other.received);
  }
};

// The copies of a buffer that tasks use in this way, from the first one of a micro-batch to the last.
Copies between(const std::vector<StageTask>& tasks, const Uses& uses, int64_t micro_batches) {
  std::vector<size_t> begin(static_cast<size_t>(micro_batches), tasks.size());
  std::vector<size_t> end(static_cast<size_t>(micro_batches), 0);
  std::vector<size_t> used(static_cast<size_t>(micro_batches), 0);
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!uses.kinds.contains({tasks[i].phase, tasks[i].chunk})) continue;
    const auto m = static_cast<size_t>(tasks[i].micro);
    begin[m] = std::min(begin[m], i);
    end[m] = i;
    ++used[m];
  }
  Copies copies;
  std::vector<int> change(tasks.size() + 1);
  for (size_t m = 0; m < used.size(); ++m) {
    if (used[m] == 0) continue;
    if (uses.received && begin[m] > 0) --begin[m];
    copies.by_position = copies.by_position && end[m] - begin[m] + 1 == used[m];
    ++change[begin[m]];
    --change[end[m] + 1];
  }
  int64_t live = 0;
  for (const int delta : change) copies.count = std::max(copies.count, live += delta);
  return copies;
}

}  // namespace

std::vector<Copies> copies_of(const Plan& plan) {
  const Program& p = plan.program;
  std::vector<Uses> uses(p.buffers.size());
  std::vector<char> sent(p.buffers.size());
  for (const Instruction& op : p.instructions) {
    if (op.when == When::step_begin || op.when == When::step_end) continue;
    for_operands(op, [&](BufferId id) {
      const auto root = static_cast<size_t>(p.root(id));
      uses[root].kinds.emplace(op.phase, op.chunk);
      uses[root].received = uses[root].received || receives_message(op);
      sent[root] = sent[root] != 0 || sends_message(op);
    });
  }
  std::map<Uses, Copies> known;
  std::vector<Copies> copies(p.buffers.size());
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    const Buffer& buffer = p.buffers[b];
    if (buffer.parent != kNone) continue;
    if (buffer.per_micro) copies[b].count = plan.micro_batches;
    if (buffer.lifetime != Lifetime::micro || uses[b].kinds.empty()) continue;
    const auto [it, fresh] = known.try_emplace(uses[b]);
    if (fresh) it->second = between(plan.tasks, uses[b], plan.micro_batches);
    copies[b] = it->second;
    // A message may wait for its receiver while the next micro-batch is computed.
    if (sent[b] != 0 && plan.micro_batches > 1)
      copies[b] = {std::max<int64_t>(copies[b].count, 2), false};
  }
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (p.buffers[b].parent != kNone)
      copies[b] = copies[static_cast<size_t>(p.root(static_cast<BufferId>(b)))];
  return copies;
}

}  // namespace dstrain
