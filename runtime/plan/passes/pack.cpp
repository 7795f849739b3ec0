#include <map>

#include "runtime/plan/kernel_spec.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {

void pack(Program& program, const KernelLibrary& library, int threads) {
  std::map<std::pair<BufferId, bool>, BufferId> packed;
  std::vector<Instruction> packs;
  for (Instruction& op : program.instructions) {
    const bool backward = op.op == OpKind::linear_input_grad;
    if (op.op != OpKind::linear && !backward) continue;
    const BufferId weight = op.reads[1];
    op.reads.resize(backward ? 3 : 4, kNone);
    const SpecStorage spec(program, op, threads);
    const int64_t bytes = library.packed_bytes(spec.get());
    if (bytes == 0) continue;
    BufferId& buffer = packed.try_emplace({weight, backward}, kNone).first->second;
    if (buffer == kNone) {
      buffer = program.add_buffer(
          {.name = (backward ? "packed_grad:" : "packed:") + program.at(weight).name,
           .shape = {bytes},
           .dtype = DType::u8,
           .memory = MemoryClass::packed,
           .lifetime = Lifetime::step});
      OpAttrs attrs;
      attrs.rows = program.at(op.reads[0]).shape[0];
      attrs.for_input_grad = backward;
      packs.push_back({.op = OpKind::pack_weight,
                       .when = When::step_begin,
                       .attrs = attrs,
                       .reads = {weight},
                       .writes = {buffer},
                       .group = op.group});
    }
    op.reads.back() = buffer;
  }
  program.instructions.insert(program.instructions.begin(), packs.begin(), packs.end());
}

}  // namespace dstrain
