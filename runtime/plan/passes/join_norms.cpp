#include <algorithm>

#include "runtime/ir/kernel_spec.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// An instruction that does what `first` and then `second` do; `op` of it is set where there is one.
Instruction joined(const Instruction& first, const Instruction& second) {
  Instruction one = first;
  const std::vector<BufferId>&in = second.reads, &out = second.writes;
  if (first.op == OpKind::layer_norm_input_grad && second.op == OpKind::layer_norm_weight_grad &&
      in == std::vector{first.reads[0], first.reads[1], first.reads[3], first.reads[4]}) {
    one.op = OpKind::layer_norm_grad;
    one.accumulate = second.accumulate;  // input gradients are never added to others
  } else if (first.op == OpKind::add_dropout && second.op == OpKind::layer_norm &&
             in[0] == first.writes[0]) {
    one.op = OpKind::add_layer_norm;
    one.attrs = AddLayerNormAttrs{attrs_as<DropoutAttrs>(first.attrs),
                                  attrs_as<LayerNormAttrs>(second.attrs)};
    one.reads.insert(one.reads.end(), in.begin() + 1, in.end());
  } else {
    return one;
  }
  one.writes.insert(one.writes.end(), out.begin(), out.end());
  return one;
}

bool issued_together(const Instruction& a, const Instruction& b) {
  return a.when == b.when && a.phase == b.phase && a.chunk == b.chunk;
}

}  // namespace

void join_norms(Program& program, const KernelLibrary& library, int threads) {
  std::vector<Instruction>& list = program.instructions;
  std::vector<Instruction> result;
  result.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (i + 1 < list.size() && issued_together(list[i], list[i + 1])) {
      Instruction one = joined(list[i], list[i + 1]);
      if (one.op != list[i].op && library.fuses(SpecStorage(program, one, threads).get())) {
        result.push_back(std::move(one));
        ++i;
        continue;
      }
    }
    result.push_back(std::move(list[i]));
  }
  list = std::move(result);
}

}  // namespace dstrain
