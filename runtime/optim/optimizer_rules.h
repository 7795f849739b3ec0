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

// Returns the state that the optimizer of `config` keeps, in order.
std::span<const SlotRule> state_slots(const OptimizerConfig& config);

// Returns how many consecutive elements of a parameter have values of state in common; 1: none have.
int64_t state_block(const OptimizerConfig& config);

// Returns the bytes of state that the optimizer keeps for an element of a parameter that is updated in this form.
double slot_bytes(const Job& job, UpdateForm form);

// Returns the names of all optimizers' slots, each once.
std::vector<std::string_view> all_state_slots();

}  // namespace dstrain
