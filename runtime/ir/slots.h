// Slots: where plans that generate text keep the keys and values of earlier tokens, a text in each. A row of such a plan is a
// token of a slot. It is a sample of one token: its position is what `documents` says, below 0 as the text began before it.
#pragma once

#include <cstdint>

#include "runtime/ir/units/buffer.h"

namespace dstrain {

// Positions whose keys lie side by side in a slot.
inline constexpr int64_t kKeyBlock = 16;
// Returns how many positions a slot has memory for, of `positions` that it is to hold.
constexpr int64_t positions_in_memory(int64_t positions) {
  return (positions + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
}

// The slots of a plan, and the inputs that say of each row where it belongs.
struct Slots {
  int64_t count = 1, positions = 0;  // positions: of each
  BufferId documents = kNone;        // i32 (R): minus the position of each row
  BufferId of_row = kNone;           // i32 (R): the slot of each row; below 0: the row is idle
};

}  // namespace dstrain
