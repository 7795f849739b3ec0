// FinishValues: what the ranks contribute to the end of a step, exchanged through the host: the square sums of
// their gradients, their losses and stop flags.
#pragma once

#include <span>
#include <vector>

#include "runtime/core/step_rules.h"
#include "runtime/engine/step/mesh_comm.h"
#include "runtime/ir/program.h"

namespace dstrain {

class FinishValues {
 public:
  // Collective over the world of `mesh`, which outlives this object. `units`: the trained ones of this rank's program.
  FinishValues(MeshComm& mesh, Place place, std::span<const Unit> units);

  // Collective. Adds the contributions of all ranks to the step state: square sums in the order of the model's
  // units, then of the ranks of a data-parallel group, so that the norm does not depend on the number of stages.
  // `loss`: 0 on a stage without one.
  void exchange(StepState& state, std::span<const double> square_sums, double loss,
                const FinishRule& rule);

 private:
  void exchange_stages(StepState& state, std::span<const double> square_sums, double loss,
                       const FinishRule& rule);

  // Finds where the units of the whole model are. Collective.
  void find_order(std::span<const Unit> units);

  struct StageUnit {
    int stage = 0;
    size_t unit = 0;  // of those of the stage
  };

  MeshComm& mesh_;
  Place place_;
  std::vector<StageUnit> order_;  // of the model's units, if there are several stages
  size_t most_units_ = 0;         // of a stage
  std::vector<double> mine_, all_;
};

}  // namespace dstrain
