#include "runtime/plan/copies.h"

#include <algorithm>
#include <array>

namespace dstrain {
namespace {

struct Uses {
  int first = kPhases, last = -1;  // phases of a micro-batch that use the buffer
};

// The copies of a buffer whose uses begin in phase `first` and end in phase `last`.
Copies between(const std::vector<Slot>& slots, int first, int last, int64_t micro_batches) {
  std::vector<size_t> begin(static_cast<size_t>(micro_batches), slots.size());
  std::vector<size_t> end(static_cast<size_t>(micro_batches), 0);
  std::vector<size_t> used(static_cast<size_t>(micro_batches), 0);
  for (size_t i = 0; i < slots.size(); ++i) {
    const int phase = static_cast<int>(slots[i].phase);
    if (phase < first || phase > last) continue;
    const auto m = static_cast<size_t>(slots[i].micro);
    begin[m] = std::min(begin[m], i);
    end[m] = i;
    ++used[m];
  }
  Copies copies;
  std::vector<int> change(slots.size() + 1);
  for (size_t m = 0; m < used.size(); ++m) {
    if (used[m] == 0) continue;
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
    const int phase = static_cast<int>(op.phase);
    for (const auto* list : {&op.reads, &op.writes})
      for (const BufferId id : *list) {
        if (id == kNone) continue;
        const auto root = static_cast<size_t>(p.root(id));
        uses[root].first = std::min(uses[root].first, phase);
        uses[root].last = std::max(uses[root].last, phase);
        sent[root] = sent[root] != 0 || op.op == OpKind::send;
      }
  }
  std::array<std::array<Copies, kPhases>, kPhases> known{};
  for (int first = 0; first < kPhases; ++first)
    for (int last = first; last < kPhases; ++last)
      known[static_cast<size_t>(first)][static_cast<size_t>(last)] =
          between(plan.slots, first, last, plan.micro_batches);

  std::vector<Copies> copies(p.buffers.size());
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    const Buffer& buffer = p.buffers[b];
    if (buffer.parent != kNone) continue;
    if (buffer.per_micro) copies[b].count = plan.micro_batches;
    if (buffer.lifetime != Lifetime::micro || uses[b].last < 0) continue;
    copies[b] = known[static_cast<size_t>(uses[b].first)][static_cast<size_t>(uses[b].last)];
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
