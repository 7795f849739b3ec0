// RankSum: the sum of the ranks' values on a device.
#pragma once

#include <cstdint>

#include "runtime/core/devices/device.h"
#include "runtime/core/dtype.h"

namespace dstrain {

// Where the values of each rank lie in the memory of one device. Elements of the own rank are at `mine`; those of the
// others at `others`, in rank order without the own one, `stride` elements from rank to rank.
struct RankSources {
  const void* others = nullptr;
  int64_t stride = 0;
  const void* mine = nullptr;
  int own = 0, ranks = 1;
};

class RankSum {
 public:
  virtual ~RankSum() = default;
  // Gives `stream` the work that writes element i of the sum, ((s0[i] + s1[i]) + s2[i]) + ..., to out[i] for i < n:
  // added in f32 in rank order and rounded once to `dtype` (f32, bf16 or f16). The bits are sum_in_order()'s (comm).
  // `out` may be `mine`, and overlaps nothing else.
  virtual void add(DType dtype, const RankSources& sources, void* out, int64_t n,
                   Stream& stream) const = 0;
};

}  // namespace dstrain
