#include <algorithm>
#include <map>

#include "runtime/ir/kernel_spec.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {

void pack(Program& program, const KernelLibrary& library, int threads) {
  std::map<std::pair<BufferId, bool>, BufferId> packed;
  std::vector<Instruction> at_start, body;
  for (Instruction& op : program.instructions) {
    const size_t packed_weight = rule_of(op.op).packed_weight;
    // It adds over the features of the weight, and not over its channels.
    const bool backward = axes_of(program, op).along(OperandAxis::feature) == Along::contracted;
    int64_t bytes = 0;
    if (packed_weight > 0) {
      op.reads.resize(std::max(op.reads.size(), packed_weight + 1), kNone);
      bytes = library.packed_bytes(SpecStorage(program, op, threads).get());
    }
    if (bytes > 0) {
      const BufferId weight = op.reads[1];
      BufferId& buffer = packed.try_emplace({weight, backward}, kNone).first->second;
      if (buffer == kNone) {
        const Shape x = program.at(op.reads[0]).shape;
        // A weight that is gathered within a micro-batch is packed after each gather.
        const bool gathered = program.at(program.root(weight)).lifetime == Lifetime::micro;
        buffer = program.add_buffer(
            {.name = (backward ? "packed_grad:" : "packed:") + program.at(weight).name,
             .shape = {bytes},
             .dtype = DType::u8,
             .memory = MemoryClass::packed,
             .lifetime = gathered ? Lifetime::micro : Lifetime::step});
        (gathered ? body : at_start)
            .push_back({.op = OpKind::pack_weight,
                        .when = gathered ? op.when : When::step_begin,
                        .attrs = PackAttrs{x.elements() / x[-1], backward},
                        .reads = {weight},
                        .writes = {buffer},
                        .group = op.group,
                        .phase = op.phase,
                        .chunk = op.chunk});
      }
      op.reads[packed_weight] = buffer;
    }
    (op.when == When::step_begin ? at_start : body).push_back(std::move(op));
  }
  at_start.insert(at_start.end(), std::make_move_iterator(body.begin()),
                  std::make_move_iterator(body.end()));
  program.instructions = std::move(at_start);
}

}  // namespace dstrain
