// f32 products of oneDNN (dnnl_sgemm), on the calling thread's OpenMP threads.
// OpenBLAS is as fast where it knows the CPU, but picks its code by the CPU's model: one newer than
// the library gets code for the oldest, at a fifth of the speed. oneDNN goes by the CPU's features.
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
};
void sgemm(const SgemmCall& call);

}  // namespace dstrain
