// f32 matrix product C = A B on several threads. k is divided into parts whose length depends on k alone. An
// element is summed in ascending k within a part, and the parts' sums are added in order. So its bits depend
// neither on the number of threads nor on the other elements.
#pragma once

#include <cstdint>

namespace dstrain {

// The arguments of sgemm(): c (m,n) = a b, or c += a b with `accumulate`. Matrices are row-major; strides are
// elements per stored row.
struct SgemmCall {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_stride = 0;
  bool a_transposed = false;  // a is stored as (k,m)
  const float* b = nullptr;
  int64_t b_stride = 0;
  bool b_transposed = false;  // b is stored as (n,k)
  float* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
  int threads = 1;
  float* workspace = nullptr;    // 64-byte aligned
  int64_t workspace_floats = 0;  // at least sgemm_workspace_floats()
};
// Throws InternalError if the workspace is too small.
void sgemm(const SgemmCall& call);

// Returns the length of the parts into which a product divides k.
int64_t sgemm_part_length(int64_t k);

// Returns the workspace's size for products of at most these sizes.
int64_t sgemm_workspace_floats(int64_t m, int64_t n, int64_t k, int threads);

}  // namespace dstrain
