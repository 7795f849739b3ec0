// The sizes of an attention op, read from the spec of its kernel: the same on every device.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/core/philox.h"
#include "runtime/ir/kernel.h"

namespace dstrain::attention {

struct AttentionShape {
  DType dtype = DType::f32;
  int64_t batch = 0, heads = 0, seq = 0, head_size = 0;  // B, H, T, D
  uint32_t drop_threshold = 0;                           // 0: no dropout
  float drop_scale = 1;                                  // factor of kept weights

  int64_t channels() const { return heads * head_size; }  // C
  int64_t qkv_stride() const { return 3 * channels(); }   // elements from one row to the next
  // log2(e) / sqrt(D): a score times this is an exponent of two.
  float exponent_scale() const {
    return static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(head_size)));
  }
};

// Returns the shape that a spec of attention or attention_grad describes. Throws InternalError for other ops,
// dtypes and shapes.
AttentionShape shape_of(const KernelSpec& spec);

}  // namespace dstrain::attention
