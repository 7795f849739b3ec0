// The rules of all optimizers, by kind.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain {

// Returns the rule of an optimizer.
const OptimizerRule& optimizer_rule(OptimizerKind kind);

// Returns whether the optimizer of `config` freezes a slot. Then every rank has all of the first slot (no offload).
bool freezes(const OptimizerConfig& config);

// Returns whether the optimizer can update the parameters of a 16-bit run where they are the masters.
bool can_own_masters(const OptimizerConfig& config);

// The exponential moving average of the weights (dstrain.ema), a slot of any optimizer.
inline constexpr SlotRule kWeightAverage{.name = "ema", .dtype = DType::f32};

// Returns the state that the optimizer of `config` keeps for its own updates, in order.
std::span<const SlotRule> own_slots(const OptimizerConfig& config);

// Returns all state that is kept with a parameter: own_slots(), and then kWeightAverage if `config` asks for it.
std::vector<SlotRule> state_slots(const OptimizerConfig& config);

// Returns how many consecutive elements of a parameter have values of state in common; 1: none have.
int64_t state_block(const OptimizerConfig& config);

// Returns the bytes of state that the optimizer keeps for an element of a parameter that is updated in this form.
double slot_bytes(const Job& job, UpdateForm form);

// Returns the names of all optimizers' slots and of the weights' average, each once.
std::vector<std::string_view> all_state_slots();

}  // namespace dstrain
