#include "runtime/ir/product.h"

#include <limits>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

bool present(std::span<const TensorSpec> operands, size_t i) {
  return i < operands.size() && operands[i].shape != Shape{0};
}

// A matrix of any rank: the last dimension is its columns.
struct Matrix {
  int64_t rows = 0, columns = 0;
  DType dtype = DType::f32;
};

Matrix matrix(std::span<const TensorSpec> operands, size_t i, const KernelSpec& spec) {
  check(present(operands, i) && operands[i].shape.rank > 0 && operands[i].shape.elements() > 0,
        "{}: operand {} is no matrix", name_of(spec.op), i);
  const Shape& shape = operands[i].shape;
  return {shape.elements() / shape[-1], shape[-1], operands[i].dtype};
}

// Throws unless the two operands share `what` and their dtype.
void check_fit(const KernelSpec& spec, bool fit, const char* what) {
  check(fit && spec.in[0].dtype == spec.in[1].dtype,
        "{}: operands {} {} and {} {}; expected one dtype and equal {}", name_of(spec.op),
        name_of(spec.in[0].dtype), to_string(spec.in[0].shape), name_of(spec.in[1].dtype),
        to_string(spec.in[1].shape), what);
}

// Throws unless an operand has the product's result's elements and dtype.
void check_like_result(const KernelSpec& spec, const TensorSpec& operand, const char* what,
                       int64_t rows, int64_t columns, DType dtype) {
  check(operand.shape.elements() == rows * columns && operand.dtype == dtype,
        "{}: {} is {} {}, expected ({}, {}) of {}", name_of(spec.op), what, name_of(operand.dtype),
        to_string(operand.shape), rows, columns, name_of(dtype));
}

void check_size(const Product& p) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  for (const int64_t size : {p.rows, p.in_features, p.out_features}) {
    check(size > 0 && size <= kMax, "{}: a size of {}, expected 1 to {}", name_of(p.op), size,
          kMax);
  }
  check(p.dtype == DType::f32 || is_16bit(p.dtype), "{}: no kernel for {}", name_of(p.op),
        name_of(p.dtype));
  check(p.threads > 0, "{}: {} threads", name_of(p.op), p.threads);
}

}  // namespace

size_t packed_operand(OpKind op) {
  return rule_of(op).packed_weight;
}

Product product_of(const KernelSpec& spec) {
  Product p;
  p.op = spec.op;
  p.threads = spec.threads;
  switch (spec.op) {
    case OpKind::linear: {
      const Matrix x = matrix(spec.in, 0, spec), weight = matrix(spec.in, 1, spec);
      check_fit(spec, weight.columns == x.columns, "columns");
      p.dtype = x.dtype;
      p.rows = x.rows;
      p.in_features = x.columns;
      p.out_features = weight.rows;
      p.bias = present(spec.in, 2);
      const Activation activation = attrs_as<ActivationAttrs>(spec.attrs).activation;
      p.relu = activation == Activation::relu;
      p.gelu = activation == Activation::gelu;
      p.pre = p.gelu && present(spec.out, kPreOutput);
      if (p.pre)
        check_like_result(spec, spec.out[kPreOutput], "what gelu sees", p.rows, p.out_features,
                          p.dtype);
      p.packed = present(spec.in, packed_operand(spec.op));
      p.residual = present(spec.in, kResidualInput);
      if (p.residual) {
        check(activation == Activation::none, "{}: a residual and an activation", name_of(spec.op));
        check_like_result(spec, spec.in[kResidualInput], "the residual", p.rows, p.out_features,
                          p.dtype);
      }
      break;
    }
    case OpKind::linear_input_grad: {
      const Matrix d_y = matrix(spec.in, 0, spec), weight = matrix(spec.in, 1, spec);
      check_fit(spec, weight.rows == d_y.columns, "out features");
      p.dtype = d_y.dtype;
      p.rows = d_y.rows;
      p.in_features = weight.columns;
      p.out_features = weight.rows;
      p.packed = present(spec.in, packed_operand(spec.op));
      p.gelu = p.pre = attrs_as<ActivationAttrs>(spec.attrs).activation == Activation::gelu;
      if (p.gelu) {
        check(present(spec.in, kPreInput), "{}: what gelu saw is absent", name_of(spec.op));
        check_like_result(spec, spec.in[kPreInput], "what gelu sees", p.rows, p.in_features,
                          p.dtype);
      }
      break;
    }
    case OpKind::linear_weight_grad: {
      const Matrix d_y = matrix(spec.in, 0, spec), x = matrix(spec.in, 1, spec);
      check_fit(spec, x.rows == d_y.rows, "rows");
      p.dtype = d_y.dtype;
      p.rows = d_y.rows;
      p.in_features = x.columns;
      p.out_features = d_y.columns;
      break;
    }
    default:
      check(false, "{} is no product", name_of(spec.op));
  }
  check_size(p);
  return p;
}

Product product_of_pack(const KernelSpec& spec) {
  const Matrix weight = matrix(spec.in, 0, spec);
  const auto attrs = attrs_as<PackAttrs>(spec.attrs);
  Product p;
  p.op = attrs.for_input_grad ? OpKind::linear_input_grad : OpKind::linear;
  p.dtype = weight.dtype;
  p.rows = attrs.rows;
  p.in_features = weight.columns;
  p.out_features = weight.rows;
  p.packed = true;
  p.threads = spec.threads;
  check_size(p);
  return p;
}

}  // namespace dstrain
