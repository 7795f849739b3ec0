// OptimizerRule: what the plan, the trainer and checkpoints know about an optimizer: its name, the state that it keeps
// for each parameter, how it updates a unit, and the values of its parameters. The rules are in
// runtime/optim/optimizers, the keys of the configuration in runtime/config/keys/deepspeed/optimizer.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/core/tensor.h"
#include "runtime/optim/sign_exchange.h"
#include "runtime/optim/slot_rule.h"
#include "runtime/optim/step_kind.h"
#include "runtime/optim/unit_update.h"

namespace dstrain {

// A key in optimizer.params and its value as text.
struct OptimizerParam {
  std::string_view key;
  std::string value;
  std::optional<std::string> usual{};  // what a checkpoint has that lacks the key (RunFact::usual)
};
using OptimizerParams = std::vector<OptimizerParam>;

// The kinds of steps of an optimizer that have an order of their own.
struct StepPattern {
  // Returns the kinds; the first is `regular`.
  std::vector<StepKind> (*kinds)(const OptimizerConfig& config) = nullptr;
  // Returns the kind of the step after `applied_steps` updates.
  StepKind (*kind_of_step)(const OptimizerConfig& config, int64_t applied_steps) = nullptr;
  // Returns which steps have a kind: "steps 1 to 999".
  std::string (*steps_text)(const OptimizerConfig& config, StepKind kind) = nullptr;
};

// A number of updates that no run reaches, and that can be counted on from.
inline constexpr int64_t kNoFreeze = INT64_MAX / 4;

// An optimizer whose ranks, from some step on, keep their own gradients and send signs of momenta, gradients or steps.
struct SignRule {
  // Makes the update of a unit in steps of a kind other than `whole_gradients`.
  std::unique_ptr<SignUpdate> (*update)(UnitUpdate& update, StepKind kind) = nullptr;
  // Returns after how many updates the second slot is frozen, and the key of the configuration that says so.
  int64_t (*freeze_step)(const OptimizerConfig& config) = nullptr;
  const char* freeze_key = nullptr;
  // Returns how many updates at the beginning equal those of the optimizer that sends whole gradients; null: freeze_step().
  int64_t (*exact_steps)(const OptimizerConfig& config) = nullptr;
  // Changes the constants so that no step of a run sends signs.
  void (*never_freeze)(OptimizerConfig& config) = nullptr;
  // Changes the constants so that all kinds of steps occur in a run of few. Returns how many steps that takes.
  int64_t (*shorten)(OptimizerConfig& config) = nullptr;
  // Not null: ranks move by themselves between synchronisations, so that master weights, which all ranks have alike,
  // are never the parameters themselves. Returns how many steps directly before the step after `applied_steps` updates
  // are local and not synchronised.
  int64_t (*open_local_steps)(const OptimizerConfig& config, int64_t applied_steps) = nullptr;
  // Null: the first freeze_step() updates are by whole gradients, and all others regular.
  const StepPattern* pattern = nullptr;
};

// What OptimizerRule::takes is told of a parameter.
struct TakenParameter {
  std::string_view name;
  Shape shape;             // of the whole tensor
  bool looked_up = false;  // it is the table of an embedding
};

// One optimizer.
struct OptimizerRule {
  OptimizerKind kind{};
  // Returns the type as the configuration names it.
  std::string_view (*name)(const OptimizerConfig& config) = nullptr;
  // Its state, all that plans, memory and checkpoints know of it; it keeps static storage.
  std::span<const SlotRule> slots{};
  // Whether it keeps the state with these parameters; null: always.
  bool (*has_state)(const OptimizerConfig& config) = nullptr;
  // The form in which some parameters are updated, and whether a parameter is one of them. Null: none is. The others are
  // updated element by element.
  UpdateForm other_form = UpdateForm::elements;
  bool (*takes)(const OptimizerConfig& config, const TakenParameter& parameter) = nullptr;
  // Appends the update of a unit by the sum of its gradients, in two parts. The first reads the gradients; a collective
  // at its end may travel while the second part of another unit's update computes.
  void (*begin)(UnitUpdate& update) = nullptr;
  void (*finish)(UnitUpdate& update) = nullptr;  // null: there is no second part
  // Not null: ranks send signs from some step on.
  const SignRule* signs = nullptr;
  // The learning rate of the parameters that are not updated as matrices.
  double OptimizerConfig::*other_lr = &OptimizerConfig::lr;
  // The share that an update keeps of an average in the state; null: the state has no average.
  double OptimizerConfig::*kept_share = nullptr;
  bool has_betas = false;      // a schedule may move the step state's betas, which it reads
  bool corrects_bias = false;  // it reads the step state's bias corrections
  // Returns its parameters besides lr and weight_decay.
  OptimizerParams (*params)(const OptimizerConfig& config) = nullptr;
};

// The averages of the gradient and of its square, which several optimizers keep.
inline constexpr SlotRule kMoments[] = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};

}  // namespace dstrain
