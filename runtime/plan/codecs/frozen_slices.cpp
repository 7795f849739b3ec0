#include "runtime/plan/codecs/frozen_slices.h"

#include <utility>

namespace dstrain {

FrozenSlices::FrozenSlices(Program& program, Place place, const Unit& unit, BufferId momentum,
                           BufferId second, BufferId whole)
    : program_(program),
      slice_(owned_slice(unit, place)),
      momentum_(momentum),
      second_(second),
      whole_(whole),
      bits_(program.add_buffer({.name = program.at(second).name + ":bits",
                                .shape = {unit.elements / 8},
                                .dtype = DType::u8,
                                .memory = MemoryClass::optimizer,
                                .lifetime = Lifetime::persistent})) {}

void FrozenSlices::append_gathers(const Instruction& like, std::vector<Instruction>& begin) {
  const auto append = [&](OpKind op, BufferId from, BufferId to) {
    begin.push_back({.op = op,
                     .when = When::step_begin,
                     .reads = {from},
                     .writes = {to},
                     .group = like.group,
                     .sublayer = like.sublayer});
  };
  const BufferId own_bits = program_.view(bits_, slice_.begin / 8, slice_.size() / 8);
  append(OpKind::positive_bits, second_, own_bits);
  append(OpKind::all_gather, own_bits, bits_);
  BufferId own = momentum_;
  if (program_.root(momentum_) != program_.root(whole_)) {
    own = program_.view(whole_, slice_.begin, slice_.size());
    append(OpKind::accumulate, momentum_, own);
  }
  append(OpKind::all_gather, own, whole_);
}

}  // namespace dstrain
