// FinishValues: what the ranks contribute to the end of a step, exchanged through the host: the square sums of
// their gradients, their losses and stop flags. It also weighs the losses of a model that has several.
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
  // `losses`: of the whole model.
  FinishValues(MeshComm& mesh, Place place, std::span<const Unit> units,
               std::span<const ProgramLoss> losses);

  // Collective. Adds the contributions of all ranks to the step state: square sums in the order of the model's
  // units, then of the ranks of a data-parallel group, so that the norm does not depend on the number of stages.
  // `losses`: the sum of each loss of the model; 0 for those of other stages.
  void exchange(StepState& state, std::span<const double> square_sums,
                std::span<const double> losses, const FinishRule& rule);

  // Returns the sums of the newest step over all ranks, without weights, of each loss of the model.
  const std::vector<double>& losses() const { return losses_; }

 private:
  // Finds where the units of the whole model are. Collective.
  void find_order(std::span<const Unit> units);

  struct StageUnit {
    int stage = 0;
    size_t unit = 0;  // of those of the stage
  };

  MeshComm& mesh_;
  Place place_;
  // Returns what the rank with these coordinates has contributed; `r`: its number among the ranks with its parameters.
  const double* from(int stage, int r, int tensor) const;
  std::vector<StageUnit> order_;          // of the model's units, if there are several stages
  size_t most_units_ = 0;                 // of a stage
  std::vector<double> weights_, losses_;  // of each loss
  std::vector<char> differentiated_;      // whether it is no metric
  std::vector<char> replicated_;          // whether all ranks of a tensor group have the loss
  std::vector<double> mine_, all_;
  std::vector<double>
      whole_;  // what each rank of a data-parallel group would contribute if it had the whole model
};

}  // namespace dstrain
