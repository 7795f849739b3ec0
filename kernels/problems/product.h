// What a product is once the operands of its op are read: sizes, dtype, epilogue, threads.
// Stands on kernels/kernel.h. Equal Products are the same computation: the body that runs one and
// the order of its additions depend on nothing else.
#pragma once

#include <cstdint>

#include "kernels/kernel.h"

namespace dstrain {

// C (m,n) = A (m,k) B (k,n):
//   linear             m = R, n = N, k = K    A = x,     B = w^T
//   linear_input_grad  m = R, n = K, k = N    A = d_y,   B = w
//   linear_weight_grad m = N, n = K, k = R    A = d_y^T, B = x
struct Product {
  OpKind op{};
  DType dtype = DType::f32;  // of activations and weight; d_weight is always f32
  int64_t rows = 0;          // R
  int64_t in_features = 0;   // K
  int64_t out_features = 0;  // N
  bool bias = false;
  bool relu = false;
  bool gelu = false;  // linear: gelu behind it; linear_input_grad: times gelu's slope at pre
  bool pre = false;   // what gelu sees is an operand: linear writes it, linear_input_grad reads it
  bool packed = false;  // the weight comes in the layout of pack_weight
  int threads = 1;

  int64_t m() const { return op == OpKind::linear_weight_grad ? out_features : rows; }
  int64_t n() const { return op == OpKind::linear ? out_features : in_features; }
  int64_t k() const {
    if (op == OpKind::linear) return in_features;
    return op == OpKind::linear_input_grad ? out_features : rows;
  }
};

// Reads the product out of a spec of linear, linear_input_grad or linear_weight_grad. Throws
// InternalError for other ops and for operands that do not fit together.
Product product_of(const KernelSpec& spec);

// The product that reads what the pack_weight of `spec` writes.
Product product_of_pack(const KernelSpec& spec);

// Indices of what gelu sees among the outputs of a linear and the inputs of a linear_input_grad.
inline constexpr size_t kPreOutput = 1, kPreInput = 3;

// Index of the packed weight among the operands of a linear or linear_input_grad.
constexpr size_t packed_operand(OpKind op) {
  return op == OpKind::linear ? 3 : 2;
}

}  // namespace dstrain
