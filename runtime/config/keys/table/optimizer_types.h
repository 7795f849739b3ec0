// The values of optimizer.type that a run can have.
#pragma once

#include <string_view>

#include "runtime/config/job.h"

namespace dstrain {

// A value of optimizer.type, and how its optimizer is limited.
struct OptimizerType {
  std::string_view name;  // as messages have it
  OptimizerKind kind{};
  // Ranks send signs in place of gradients. `stages`: at which ZeRO stages, why, and what to use elsewhere; empty: they
  // send gradients, at every stage.
  int highest_stage = 3;
  std::string_view stages{};
  // Why OneCycle does not move its betas, although it has some; empty: it does.
  std::string_view fixed_betas{};
};

// Returns the names of all types for messages: "AdamW, Adam, ... or ZeroOneAdam".
std::string_view optimizer_names();

// Returns the type that optimizer.type names; null where it names none that is available. SGD is written as torch.optim
// has it, the others in any case.
const OptimizerType* optimizer_type(std::string_view name);

// Returns the type with which DeepSpeed makes the optimizer of a class, "AdamW" for "FusedAdam" and for Hugging Face's
// "adamw_torch"; empty: the name is no such class. Adam's classes decay decoupled unless their arguments say otherwise.
std::string_view type_of_class(std::string_view name);

// Returns the first type of a kind.
const OptimizerType& optimizer_type_of(OptimizerKind kind);

}  // namespace dstrain
