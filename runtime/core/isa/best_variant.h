// Calls the best variant of a function of which Highway compiles several, one per instruction set, from one source:
//
//   DSTRAIN_BEST(add_range)(dtype, a, b, y, begin, end);
//
// max_isa() alone decides. Highway's own dispatch (HWY_DYNAMIC_DISPATCH) asks a mask of the whole process, which other
// calls of that library set anew, so that it can differ between a plan and the kernels that the plan is for.
#pragma once

#include <hwy/highway.h>

#include <type_traits>

#include "runtime/core/isa/isa.h"

namespace dstrain {

// The variants of one function; null: not compiled. `base` runs on every processor that the program runs on.
template <class Function>
struct Variants {
  Function* base;
  Function* ssse3;
  Function* sse4;
  Function* avx2;
  Function* avx512;

  // Returns the best one that needs at most `most`.
  constexpr Function* at(Vectors most) const {
    if (most >= Vectors::avx512 && avx512) return avx512;
    if (most >= Vectors::avx2 && avx2) return avx2;
    if (most >= Vectors::sse4 && sse4) return sse4;
    if (most >= Vectors::ssse3 && ssse3) return ssse3;
    return base;
  }
};

}  // namespace dstrain

// The variants of `f`, a function of the namespace HWY_NAMESPACE. To be used once per file, under HWY_ONCE, outside of
// that namespace.
#define DSTRAIN_VARIANTS(f)                                                                \
  (::dstrain::Variants<std::remove_pointer_t<decltype(&HWY_STATIC_DISPATCH(f))>>{          \
      HWY_CHOOSE_FALLBACK(f), HWY_CHOOSE_SSSE3(f), HWY_CHOOSE_SSE4(f), HWY_CHOOSE_AVX2(f), \
      HWY_CHOOSE_AVX3(f)})
#define DSTRAIN_BEST(f) DSTRAIN_VARIANTS(f).at(::dstrain::widest_vectors())
