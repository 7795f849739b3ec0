// Weights that are held in packed blocks (runtime/core/blocks/weight_blocks.h).
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/storage/state.h"

namespace dstrain {

// Makes an entry of bytes, the packed blocks of a weight of this shape, one of the weight's elements.
void as_elements(StateEntry& entry, const Shape& shape, BlockFormat format);

// Writes elements [begin, begin + count) of a weight to `to`.
using MakeValues = std::function<void(int64_t begin, int64_t count, float* to)>;
// Packs the values of an entry's slice, which must be whole groups, some groups at a time. Throws InternalError if one is
// no number.
void pack_entry(const StateEntry& entry, const MakeValues& make);

}  // namespace dstrain
