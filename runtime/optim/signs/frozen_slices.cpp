#include "runtime/optim/signs/frozen_slices.h"

namespace dstrain {

FrozenSlices::FrozenSlices(UnitUpdate& update, BufferId whole)
    : update_(update),
      momentum_(update.buffers().slots[0].values.id),
      second_(update.buffers().slots[1].values.id),
      whole_(whole),
      bits_(update.program().add_buffer({.name = update.program().at(second_).name + ":bits",
                                         .shape = {update.unit().elements / 8},
                                         .dtype = DType::u8,
                                         .memory = MemoryClass::optimizer,
                                         .lifetime = Lifetime::persistent})) {}

void FrozenSlices::emit_gathers() {
  Program& program = update_.program();
  const Range slice = update_.updated();
  const BufferId own_bits = program.view(bits_, slice.begin / 8, slice.size() / 8);
  update_.emit_first(OpKind::positive_bits, {}, {second_}, {own_bits});
  update_.emit_first(OpKind::all_gather, {}, {own_bits}, {bits_});
  BufferId own = momentum_;
  if (program.root(momentum_) != program.root(whole_)) {
    own = program.view(whole_, slice.begin, slice.size());
    update_.emit_first(OpKind::accumulate, {}, {momentum_}, {own});
  }
  update_.emit_first(OpKind::all_gather, {}, {own}, {whole_});
}

}  // namespace dstrain
