// f32 products on OpenBLAS, with the epilogue in one pass over the result.
#pragma once

#include <memory>

#include "kernels/cpu/products/product.h"

namespace dstrain {

// c (m,n) = a b, or c += a b; a and b are f32, row-major or (where said) given transposed; strides
// are elements per stored row. Runs on the calling thread's OpenMP threads.
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

std::unique_ptr<Kernel> make_blas_product(const Product& product);

}  // namespace dstrain
