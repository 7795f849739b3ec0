#include "kernels/cpu/products/sgemm.h"

#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/products/dnnl_library.h"

namespace dstrain {

void sgemm(const SgemmCall& g) {
  limit_dnnl_isa();
  check_dnnl(
      dnnl_sgemm(g.a_transposed ? 'T' : 'N', g.b_transposed ? 'T' : 'N', g.m, g.n, g.k, 1.0f, g.a,
                 g.a_stride, g.b, g.b_stride, g.accumulate ? 1.0f : 0.0f, g.c, g.c_stride),
      "multiplying in f32");
}

}  // namespace dstrain
