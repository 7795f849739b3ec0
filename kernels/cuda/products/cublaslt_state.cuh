// The state that all products of a library share on a GPU: cuBLASLt's handle and the algorithms it chose.
#pragma once

#include <cublasLt.h>

#include <map>
#include <optional>
#include <tuple>

#include "kernels/cuda/launch.cuh"
#include "runtime/ir/product.h"

namespace dstrain::cuda {

// Throws RunError with `what` if a call of cuBLASLt failed.
void check_cublas(cublasStatus_t status, const char* what);

// Bytes of scratch memory that a product may use. It is fixed, so that a plan can be made without a GPU. 32 MiB is
// cuBLAS's own default on sm_90. The address is aligned to 256 bytes inside the plan's workspace.
inline constexpr int64_t kProductWorkspace = int64_t{32} << 20;
inline constexpr int64_t kProductWorkspaceAlignment = 256;
// Alignment of operands in bytes; a product with other operands uses the tiled product.
inline constexpr uint32_t kOperandAlignment = 16;

// Owns a cuBLASLt descriptor.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <class T, cublasStatus_t (*destroy)(T*)>
using Owned = std::unique_ptr<T, Destroy<T*, destroy>>;
using MatmulDesc = Owned<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

// A product in cuBLASLt's terms: column-major, d (m,n) = op(a) op(b) + beta c, with c like d.
struct Matmul {
  MatmulDesc desc;
  MatrixLayout a, b, d;
};

// The handle of cuBLASLt and the algorithms that it chose, shared by the products of one kernel library. It owns the
// handle. Only one thread may use it at a time.
class ProductState {
 public:
  ProductState() = default;
  ProductState(const ProductState&) = delete;
  ProductState& operator=(const ProductState&) = delete;
  ~ProductState();

  // Creates the handle at the first call, so that a plan can be made without a GPU.
  cublasLtHandle_t handle();
  // Returns the first choice of cuBLASLt's heuristic for this product, or nothing if it has none. The heuristic is
  // asked once per product.
  // Logs a product without one.
  std::optional<cublasLtMatmulAlgo_t> algorithm(const Product& product, const Matmul& matmul);
  // Logs, at the first call, that cuBLASLt cannot compute a product because of an operand's address.
  void note_unaligned(const Product& product);

 private:
  using Key = std::tuple<OpKind, DType, int64_t, int64_t, int64_t, bool, bool, bool, bool, bool>;
  cublasLtHandle_t handle_ = nullptr;
  bool noted_unaligned_ = false;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> chosen_;
};

}  // namespace dstrain::cuda
