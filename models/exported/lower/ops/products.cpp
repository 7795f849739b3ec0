// Operators that are products of matrices.
#include <algorithm>
#include <utility>
#include <vector>

#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// Returns x (..., k) times the transpose of weights (n, k).
Value product_with(Lowering& l, const Value& x, const Value& weight, std::optional<BufferId> bias) {
  // Rows are computed in the order in which they are in memory, and so need no copy that is in another order.
  const std::vector<int> order = order_in_memory(x);
  if (!std::ranges::is_sorted(order) && order.back() == x.shape.rank - 1)
    return permute(product_with(l, permute(x, order), weight, bias), inverse_of(order));
  Builder& b = l.builder();
  const int64_t k = x.shape[-1], n = weight.shape[0];
  Shape shape = x.shape;
  shape.dims[static_cast<size_t>(shape.rank - 1)] = n;
  if (k == 0) return expand(number(0, x.type), shape);
  const int64_t rows = x.shape.elements() / k;
  const Value matrix = l.reshaped(x, {rows, k});
  if (const std::optional<BufferId> parameter = l.parameter(weight)) {
    const BufferId id =
        b.linear(l.rows(matrix), *parameter, bias.value_or(kNone), Activation::none);
    return whole(id, shape, x.type);
  }
  return l.reshaped(l.contracted(matrix, weight), shape);
}

void lower_linear(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "input"), weight = l.operand(node, "weight");
  if (weight.shape.rank != 2) Lowering::fail(node, "has weights of {}", to_string(weight.shape));
  if (!node.has("bias")) return l.set(node, product_with(l, x, weight, std::nullopt));
  const Value bias = l.operand(node, "bias");
  const std::optional<BufferId> held = l.parameter(bias);
  if (held && l.parameter(weight)) return l.set(node, product_with(l, x, weight, held));
  l.set(node, l.pointwise(
                  node, [](std::span<const Formula> f) { return f[0] + f[1]; },
                  {product_with(l, x, weight, std::nullopt), bias}, x.type));
}

// Returns a (batch, m, k) times b (batch, k, n), with the batches that they have together.
Value matrix_product(Lowering& l, const Node& node, Value a, Value b) {
  const auto batch_of = [](const Shape& shape) {
    Shape batch;
    for (int d = 0; d + 2 < shape.rank; ++d) batch.append(shape[d]);
    return batch;
  };
  const std::optional<Shape> batch = broadcast(batch_of(a.shape), batch_of(b.shape));
  if (!batch)
    Lowering::fail(node, "batches of {} and {} have no common one", to_string(a.shape),
                   to_string(b.shape));
  const auto with_batch = [&batch](Value value) {
    Shape shape = *batch;
    shape.append(value.shape[-2]);
    shape.append(value.shape[-1]);
    return expand(std::move(value), shape);
  };
  b = transpose(b, b.shape.rank - 2, b.shape.rank - 1);
  // Weights that all matrices of a batch have are those of one product.
  if (b.shape.rank == 2) return product_with(l, a, b, std::nullopt);
  return l.contracted(with_batch(std::move(a)), with_batch(std::move(b)));
}

void lower_matmul(Lowering& l, const Node& node) {
  Value a = l.operand(node, "self");
  Value b = l.operand(node, node.find("mat2") ? "mat2" : "other");
  const bool row = a.shape.rank == 1, column = b.shape.rank == 1;
  if (row) a = unsqueeze(std::move(a), 0);
  if (column) b = unsqueeze(std::move(b), 1);
  Value product = matrix_product(l, node, std::move(a), std::move(b));
  if (column) product = squeeze(product, product.shape.rank - 1);
  if (row) product = squeeze(product, product.shape.rank - (column ? 1 : 2));
  l.set(node, std::move(product));
}

void lower_dot(Lowering& l, const Node& node) {
  const Value product = l.pointwise(
      node, [](std::span<const Formula> f) { return f[0] * f[1]; },
      {l.operand(node, "self"), l.operand(node, "tensor")}, l.result(node).type);
  l.set(node, l.reduced(Reduction::sum, product, {0}, false));
}

void lower_outer(Lowering& l, const Node& node) {
  l.set(node,
        l.pointwise(
            node, [](std::span<const Formula> f) { return f[0] * f[1]; },
            {unsqueeze(l.operand(node, "self"), 1), l.operand(node, "vec2")}, l.result(node).type));
}

// beta * self + alpha * the product of two others.
template <const char* kA, const char* kB>
void lower_added(Lowering& l, const Node& node) {
  const float alpha = Lowering::real(node, "alpha"), beta = Lowering::real(node, "beta");
  const Value product = matrix_product(l, node, l.operand(node, kA), l.operand(node, kB));
  l.set(node, l.pointwise(
                  node,
                  [=](std::span<const Formula> f) {
                    const Formula scaled = alpha == 1 ? f[0] : alpha * f[0];
                    return scaled + (beta == 1 ? f[1] : beta * f[1]);
                  },
                  {product, l.operand(node, "self")}, product.type));
}

constexpr char kMat1[] = "mat1", kMat2[] = "mat2", kBatch1[] = "batch1", kBatch2[] = "batch2";

constexpr LoweredOp kProducts[] = {
    {"aten.addmm.default", lower_added<kMat1, kMat2>},
    {"aten.baddbmm.default", lower_added<kBatch1, kBatch2>},
    {"aten.bmm.default", lower_matmul},
    {"aten.dot.default", lower_dot},
    {"aten.linear.default", lower_linear},
    {"aten.matmul.default", lower_matmul},
    {"aten.mm.default", lower_matmul},
    {"aten.outer.default", lower_outer},
};

}  // namespace

std::span<const LoweredOp> product_operators() {
  return kProducts;
}

}  // namespace dstrain::exported
