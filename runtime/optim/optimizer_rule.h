// OptimizerRule: what the plan, the trainer and checkpoints know about an optimizer: its name, the state that it keeps
// for each parameter, the op that updates a range of parameters, and the values of its parameters. The rules are in
// runtime/optim/optimizers, the keys of the configuration in runtime/config/keys/optimizer.cpp.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/core/tensor.h"
#include "runtime/ir/op.h"
#include "runtime/optim/unit_update.h"

namespace dstrain {

// Names of keys in optimizer.params and their values as text.
using OptimizerParams = std::vector<std::pair<std::string_view, std::string>>;

// One optimizer.
struct OptimizerRule {
  OptimizerKind kind{};
  // Returns the type as the configuration names it.
  std::string_view (*name)(const OptimizerConfig& config) = nullptr;
  // The names of its state, f32 and one value per element, in the order in which `op` writes it. Checkpoints use these
  // names too.
  std::array<std::string_view, 2> slots{};
  // Whether it keeps the state with these parameters; null: always.
  bool (*has_state)(const OptimizerConfig& config) = nullptr;
  // Returns whether a parameter is updated as a whole matrix. Matrices have the first slot alone. Null: none is.
  bool (*takes_matrix)(std::string_view name, const Shape& shape) = nullptr;
  // Appends the update of a unit by the sum of its gradients, in two parts. The first reads the gradients; a collective
  // at its end may travel while the second part of another unit's update computes.
  void (*begin)(UnitUpdate& update) = nullptr;
  void (*finish)(UnitUpdate& update) = nullptr;  // null: there is no second part
  // Where frozen_attrs is set, the second slot is frozen after some updates, and ranks send the first one, or what they
  // have moved, instead of gradients (runtime/plan/step_kinds.h). Then frozen_op updates in place of `op`: it reads the
  // slots and writes the master weights and the weights in the run's dtype; where there is a scaled_op it writes a
  // direction, which frozen_lamb follows in place of scaled_op. frozen_attrs returns its attributes from those of `op`.
  OpKind op{};
  std::optional<OpKind> scaled_op{};
  OpKind frozen_op{};
  OpAttrs (*frozen_attrs)(const OpAttrs& attrs) = nullptr;
  // The frozen slot and the master weights may be sliced among ranks then (ZeRO stage 1). Ranks gather the first slot,
  // with a scaled_op apart from their slices of it, as the others' momentum is scaled.
  bool slices_frozen = false;
  // Ranks move by themselves between synchronisations, so that master weights, which all ranks have alike, are never
  // the parameters themselves.
  bool local_steps = false;
  bool has_betas = false;      // a schedule may move the step state's betas, which it reads
  bool corrects_bias = false;  // it reads the step state's bias corrections
  // Returns its parameters besides lr and weight_decay.
  OptimizerParams (*params)(const OptimizerConfig& config) = nullptr;
};

}  // namespace dstrain
