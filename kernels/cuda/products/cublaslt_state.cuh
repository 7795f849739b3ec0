// What all products of a library share on a GPU: the handle of cuBLASLt and the algorithms it chose.
#pragma once

#include <cublasLt.h>

#include <map>
#include <optional>
#include <tuple>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/product.h"

namespace dstrain::cuda {

// Throws RunError naming `what` where a call of cuBLASLt failed.
void check_cublas(cublasStatus_t status, const char* what);

// Scratch memory a product may use: fixed, so that the plan knows it without asking a GPU. 32 MiB is what
// cuBLAS itself takes on sm_90; aligned to 256 bytes inside what the plan gives.
inline constexpr int64_t kProductWorkspace = int64_t{32} << 20;
inline constexpr int64_t kProductWorkspaceAlignment = 256;
// Bytes that addresses of operands are a multiple of; others take the tiled product.
inline constexpr uint32_t kOperandAlignment = 16;

// Owns a descriptor of cuBLASLt.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <class T, cublasStatus_t (*destroy)(T*)>
using Owned = std::unique_ptr<T, Destroy<T*, destroy>>;
using MatmulDesc = Owned<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

// One product as cuBLASLt sees it: column-major, d (m,n) = op(a) op(b) + beta d.
struct Matmul {
  MatmulDesc desc;
  MatrixLayout a, b, d;
};

class ProductState {
 public:
  ProductState() = default;
  ProductState(const ProductState&) = delete;
  ProductState& operator=(const ProductState&) = delete;
  ~ProductState();

  // Made when a kernel first needs it: sizes are known without a GPU.
  cublasLtHandle_t handle();
  // The algorithm the library's heuristic puts first for this product, asked once per product; nothing
  // where it has none.
  std::optional<cublasLtMatmulAlgo_t> algorithm(const Product& product, const Matmul& matmul);

 private:
  using Key = std::tuple<OpKind, DType, int64_t, int64_t, int64_t, bool, bool, bool, bool>;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> chosen_;
};

}  // namespace dstrain::cuda
