// What ranks gather of a unit's frozen state where it is sharded: to make its share of the momentum a rank needs the
// momentum of all ranks, and where the second moment of every element is above 0, as bits. Each rank has its slice of
// both when steps with whole gradients end, and when a run is resumed; a step of the kind `whole_momentum` gathers
// them.
#pragma once

#include "runtime/optim/unit_update.h"

namespace dstrain {

class FrozenSlices {
 public:
  // `whole`: where the momentum is gathered, of which the rank's slice may be a part. Adds the buffer
  // "exp_avg_sq:U:bits".
  FrozenSlices(UnitUpdate& update, BufferId whole);

  // Returns the bits of the whole unit: u8, an eighth of its elements.
  BufferId bits() const { return bits_; }
  // Appends what gathers both, at the beginning of the step.
  void emit_gathers();

 private:
  UnitUpdate& update_;
  const BufferId momentum_, second_, whole_;
  BufferId bits_ = kNone;
};

}  // namespace dstrain
