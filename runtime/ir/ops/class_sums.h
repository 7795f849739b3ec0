// What class_sums finds of each row of logits.
#pragma once

#include <cstdint>

#include "runtime/ir/op.h"

namespace dstrain::ops {

// Returns how many numbers a row has: the largest logit, the sum of exponentials less it, the target's logit, and with
// smoothing the sum of the logits.
constexpr int64_t class_sums_of(const CrossEntropyAttrs& attrs) {
  return attrs.smoothing > 0 ? 4 : 3;
}

}  // namespace dstrain::ops
