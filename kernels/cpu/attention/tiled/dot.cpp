#include "kernels/cpu/attention/portable.h"
#include "kernels/cpu/attention/tiled/tiled.h"

#if defined(__x86_64__)
// GCC 12 warns falsely: its vector intrinsics start from an undefined register (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#define DST_TILES dot
// Only the code up to pop_options is compiled with these instruction sets.
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,prefer-vector-width=512")
#include "kernels/cpu/attention/tiled/dot-inl.h"
#include "kernels/cpu/attention/tiled/implementation-inl.h"
#pragma GCC pop_options

namespace dstrain::attention {

const Implementation* dot_implementation() {
  static const Implementation implementation = dot::implementation();
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") ? &implementation : nullptr;
}

}  // namespace dstrain::attention

#else

namespace dstrain::attention {

const Implementation* dot_implementation() {
  return nullptr;
}

}  // namespace dstrain::attention

#endif
