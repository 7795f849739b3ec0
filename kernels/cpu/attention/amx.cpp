#include "kernels/cpu/attention/amx.h"

#include "kernels/cpu/attention/portable.h"

#if defined(__x86_64__)
// GCC 12's vector intrinsics start from an undefined register on purpose (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

// Only what follows may use these instructions; nothing above is compiled with them.
#pragma GCC push_options
#pragma GCC target( \
    "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,prefer-vector-width=512")
#include "kernels/cpu/attention/amx_backward-inl.h"
#include "kernels/cpu/attention/amx_forward-inl.h"
#pragma GCC pop_options

namespace dstrain::attention {

const Body* amx_body() {
  static const Body body{amx::kForwardQueries, amx::kQueries, amx::kKeys,   amx::forward_bytes,
                         amx::backward_bytes,  amx::forward,  amx::backward};
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") ? &body : nullptr;
}

}  // namespace dstrain::attention

#else

namespace dstrain::attention {

const Body* amx_body() {
  return nullptr;
}

}  // namespace dstrain::attention

#endif
