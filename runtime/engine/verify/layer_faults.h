// Seeded faults of ranks that have parts of the same layers and samples: what they change of one instruction.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/engine/step/observer/step_observer.h"

namespace dstrain {

// Returns the unit whose whole gradient's squares the instruction adds; null for other instructions.
const Unit* unit_of_norm(const Program& program, const Instruction& op);

// Returns whether the instruction adds a gradient over ranks that all tensor ranks have alike.
bool adds_replicated_gradient(const ObservedIssue& issue);
// Makes the sum that such an instruction has written this rank's own gradient. `own`: what it read. Returns whether that
// changes any bit.
bool leave_out_sum(const ObservedIssue& issue, const std::vector<std::byte>& own);

// After attention of several heads: its result is that of the next head, in each head. Returns whether that changes any
// bit; false for other instructions.
bool rotate_heads(const ObservedIssue& issue);

// After the sum of the squares of a gradient that all tensor ranks have alike: multiplies it by their number. Returns
// whether that changes it; false for other instructions.
bool count_for_each_tensor_rank(const ObservedIssue& issue);

// Before the loss of a sequence rank: makes the last target of the rank's rows their first one. Returns whether that
// changes it; false for other instructions.
bool shift_targets_late(const ObservedIssue& issue);

// Returns the attributes of an instruction with dropout as if the rank's rows or heads were the first ones of a
// micro-batch; nothing for other instructions, and where they are.
std::optional<OpAttrs> without_offset(const Instruction& op);

}  // namespace dstrain
