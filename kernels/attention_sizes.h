// What an attention kernel computes once the operands of its op are read, the same on every device.
// Stands on runtime/ir/kernel.h.
#pragma once

#include <cstdint>

#include "runtime/core/philox.h"
#include "runtime/ir/kernel.h"

namespace dstrain::attention {

struct AttentionShape {
  DType dtype = DType::f32;
  int64_t batch = 0, heads = 0, seq = 0, head_size = 0;
  uint32_t drop_threshold = 0;  // 0: no dropout
  float drop_scale = 1;         // of kept weights

  int64_t channels() const { return heads * head_size; }
  int64_t qkv_stride() const { return 3 * channels(); }  // elements from one row to the next
};

// Reads the problem out of a spec of attention or attention_grad. Throws InternalError for other
// ops, dtypes and shapes.
AttentionShape shape_of(const KernelSpec& spec);

}  // namespace dstrain::attention
