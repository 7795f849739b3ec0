// The 8-bit code of optimizer state (runtime/core/blocks/dynamic_code.h) by arithmetic, without a look-up in memory. A
// magnitude has a place: its number for signed codes, and one more for unsigned ones. Then places [2^e, 2^(e+1)) are a decade,
// and the one below the lowest decade is that of 0.
#pragma once

#include <array>
#include <cstddef>

#include "runtime/core/blocks/dynamic_code.h"

namespace dstrain::simd {

// Eight values that are chosen by a small index, repeated for vectors of 16 lanes.
using SmallTable = std::array<float, 16>;

// What turns magnitudes of a code, signed or not, to places and back.
struct CodeTables {
  int first = 0;         // the place of 0
  int last = 0;          // the place of 1
  SmallTable decades{};  // by the decade's number + 1; 0 for what is below the lowest
  // The place of a magnitude x in decade d, which may lie between two places, is x * slopes[d] + offsets[d].
  SmallTable slopes{}, offsets{};

  explicit constexpr CodeTables(bool is_signed) : first(is_signed ? 0 : 1) {
    last = first + (is_signed ? kSignedMagnitudes : kUnsignedMagnitudes);
    for (size_t d = 0; d < kDecades.size(); ++d) {
      const double count = (is_signed ? 1 : 2) << d;
      for (const size_t half : {size_t{0}, size_t{8}}) {
        decades[half + d + 1] = kDecades[d];
        slopes[half + d] = static_cast<float>(count / 0.9 / static_cast<double>(kDecades[d]));
        offsets[half + d] = static_cast<float>(count - 0.1 / 0.9 * count - 0.5);
      }
    }
  }
};

inline constexpr CodeTables kSignedCode(true), kUnsignedCode(false);

}  // namespace dstrain::simd
