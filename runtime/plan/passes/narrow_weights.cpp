#include <map>

#include "runtime/plan/slot_plans.h"

namespace dstrain {

void narrow_weights(Program& program, DType weights) {
  if (weights == DType::f32) return;
  std::map<BufferId, BufferId> copies;  // of each parameter; kNone: not made yet
  for (const Parameter& p : program.parameters)
    if (p.adapter == AdapterMatrix::none && p.blocks == BlockFormat::none)
      copies.try_emplace(p.value, kNone);
  for (Instruction& op : program.instructions) {
    // The weight of a row_linear alone may have another dtype than what it meets.
    if (family_of(op.op) != OpFamily::decode || op.reads.size() > 3 || op.writes.size() != 1)
      continue;
    const auto found = copies.find(op.reads[1]);
    if (found == copies.end()) continue;
    if (found->second == kNone) {
      const Buffer& wide = program.at(found->first);
      found->second = program.add_buffer({.name = "narrow:" + wide.name,
                                          .shape = wide.shape,
                                          .dtype = weights,
                                          .memory = MemoryClass::packed,
                                          .lifetime = Lifetime::persistent,
                                          .copy_of = found->first,
                                          .role = BufferRole::parameters});
    }
    op.reads[1] = found->second;
  }
}

}  // namespace dstrain
