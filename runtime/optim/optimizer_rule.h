// OptimizerRule: what the plan, the trainer and checkpoints know about an optimizer: its name, the state that it keeps
// for each parameter, the op that updates a range of parameters, and the values of its parameters. The rules are in
// runtime/optim/optimizers, the keys of the configuration in runtime/config/keys/optimizer.cpp.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/core/tensor.h"
#include "runtime/ir/op.h"

namespace dstrain {

// Names of keys in optimizer.params and their values as text.
using OptimizerParams = std::vector<std::pair<std::string_view, std::string>>;

// What a group of parameters has otherwise than others.
struct GroupSettings {
  float weight_decay = 0;
  float lr_scale =
      1;  // of the learning rate, which the decay is multiplied by too where it is decoupled
  bool operator==(const GroupSettings&) const = default;
};

// How an optimizer updates whole matrices. They keep the first of its slots alone; in its place they have:
struct MatrixRule {
  // Returns whether a parameter is updated as a whole matrix.
  bool (*takes)(std::string_view name, const Shape& shape) = nullptr;
  // Updates the slot and writes a direction: reads the gradient, writes the slot and the direction.
  OpKind direction_op{};
  OpAttrs (*direction_attrs)(const OptimizerConfig& config) = nullptr;
  // Transforms the direction of the whole matrix in place.
  OpKind whole_op{};
  OpAttrs (*whole_attrs)(const OptimizerConfig& config) = nullptr;
  // Moves a range along the direction: reads the direction, writes the master weights and the 16-bit weights.
  OpKind step_op{};
  OpAttrs (*step_attrs)(const OptimizerConfig& config, const GroupSettings& settings,
                        const Shape& shape) = nullptr;
};

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
  // Updates a run of parameters with the same settings. Without scaled_attrs it reads the gradient and writes the master
  // weights, the slots and the 16-bit weights. With scaled_attrs it reads the gradient and the master weights and
  // writes the slots and a direction.
  OpKind op{};
  // Returns the attributes of `op` for parameters with these settings. Optimizers that freeze a slot ignore lr_scale,
  // which the configuration refuses for them.
  OpAttrs (*attrs)(const OptimizerConfig& config, const GroupSettings& settings) = nullptr;
  // Where it is set, scaled_op then moves each parameter along its direction: it reads the direction and the square
  // sums of the whole parameter's weights and direction; it writes the master weights and the 16-bit weights.
  // `parameter` is the parameter's number among the `parameters` of its unit.
  OpAttrs (*scaled_attrs)(const OptimizerConfig& config, const GroupSettings& settings,
                          int64_t parameter, int64_t parameters) = nullptr;
  OpKind scaled_op{};
  // Where it is set, lamb_average keeps an average of each parameter's trust ratio, of the same square sums.
  OpAttrs (*average_attrs)(const OptimizerConfig& config) = nullptr;
  // Where they are set, the second slot is frozen after some updates, and ranks send the first one, or what they have
  // moved, instead of gradients (runtime/plan/step_kinds.h). Then frozen_op updates in place of `op`: it reads the
  // slots and writes the master weights and the weights in the run's dtype; with scaled_attrs it writes a direction,
  // which frozen_lamb follows. Returns its attributes from those of `op`.
  OpKind frozen_op{};
  OpAttrs (*frozen_attrs)(const OpAttrs& attrs) = nullptr;
  // The frozen slot and the master weights may be sliced among ranks then (ZeRO stage 1). Ranks gather the first slot,
  // with scaled_attrs apart from their slices of it, as the others' momentum is scaled.
  bool slices_frozen = false;
  // Ranks move by themselves between synchronisations, so that master weights, which all ranks have alike, are never
  // the parameters themselves.
  bool local_steps = false;
  // Where it is set, some parameters are updated as whole matrices, and `op` updates the others.
  const MatrixRule* matrices = nullptr;
  bool has_betas = false;      // a schedule may move the step state's betas, which it reads
  bool corrects_bias = false;  // it reads the step state's bias corrections
  // Returns its parameters besides lr and weight_decay.
  OptimizerParams (*params)(const OptimizerConfig& config) = nullptr;
};

}  // namespace dstrain
