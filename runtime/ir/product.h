// Product: sizes, dtype, epilogue and threads of a matrix product, read from its KernelSpec. Equal Products
// are the same computation: the implementation and the order of its additions depend on nothing else.
#pragma once

#include <cstdint>

#include "runtime/ir/kernel.h"

namespace dstrain {

// The sizes and options of one matrix product C (m,n) = A (m,k) B (k,n). The ops use it like this:
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
  bool gelu = false;  // linear: gelu of the sum; linear_input_grad: times gelu's slope at `pre`
  bool pre = false;   // gelu's input is an operand: linear writes it, linear_input_grad reads it
  bool residual =
      false;  // linear without activation: an operand is added before the result is rounded
  bool packed = false;  // the weight has the layout that pack_weight writes
  int threads = 1;

  int64_t m() const { return op == OpKind::linear_weight_grad ? out_features : rows; }
  int64_t n() const { return op == OpKind::linear ? out_features : in_features; }
  int64_t k() const {
    if (op == OpKind::linear) return in_features;
    return op == OpKind::linear_input_grad ? out_features : rows;
  }
};

// Returns the product of a spec of linear, linear_input_grad or linear_weight_grad. Throws InternalError
// for other ops and for operands whose shapes or dtypes do not match.
Product product_of(const KernelSpec& spec);

// Returns the product that reads the packed weight which the pack_weight of `spec` writes.
Product product_of_pack(const KernelSpec& spec);

// Indices of gelu's input among the outputs of a linear and the inputs of a linear_input_grad.
inline constexpr size_t kPreOutput = 1, kPreInput = 3;

// Index of the residual among the inputs of a linear.
inline constexpr size_t kResidualInput = 4;

// Index of the packed weight among the operands of a linear or linear_input_grad.
size_t packed_operand(OpKind op);

}  // namespace dstrain
