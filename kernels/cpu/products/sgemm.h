// f32 products: C = A B, on OpenMP threads. An element's sum runs over k in ascending order, in stretches
// whose length follows from k alone (each one chain of additions, added to the element when it is done).
// So its bits depend neither on the number of threads nor on the other elements of the result.
#pragma once

#include <cstdint>

namespace dstrain {

// c (m,n) = a b, or c += a b; row-major, strides in elements per stored row.
struct SgemmCall {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_stride = 0;
  bool a_transposed = false;  // a is stored (k,m)
  const float* b = nullptr;
  int64_t b_stride = 0;
  bool b_transposed = false;  // b is stored (n,k)
  float* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
  int threads = 1;
  float* workspace = nullptr;  // 64-byte aligned, of sgemm_workspace_floats()
};
void sgemm(const SgemmCall& call);

// For products of at most these sizes.
int64_t sgemm_workspace_floats(int64_t m, int64_t n, int64_t k, int threads);

}  // namespace dstrain
