// Matrix products. Each element is added up as double and rounded once.
#include <algorithm>

#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

// Returns a with the shape (batch..., m, k) times b with (batch..., k, n).
HostTensor product(const Operands& o, const HostTensor& a, const HostTensor& b) {
  const size_t ra = a.rank(), rb = b.rank();
  const int64_t m = a.sizes[ra - 2], k = a.sizes[ra - 1], n = b.sizes[rb - 1];
  if (b.sizes[rb - 2] != k || a.type != b.type || !is_floating(a.type))
    o.fail("multiplies {} of {} columns with {} of {} rows", name_of(a.type), k, name_of(b.type),
           b.sizes[rb - 2]);
  const std::optional<Sizes> batch = broadcast_sizes(
      {Sizes(a.sizes.begin(), a.sizes.end() - 2), Sizes(b.sizes.begin(), b.sizes.end() - 2)});
  if (!batch) o.fail("has operands whose sizes do not fit each other");
  Sizes sizes = *batch, a_sizes = *batch, b_sizes = *batch;
  sizes.insert(sizes.end(), {m, n});
  a_sizes.insert(a_sizes.end(), {m, k});
  b_sizes.insert(b_sizes.end(), {k, n});
  // Both over (batch..., m, n), at the first of the k elements.
  HostTensor left = expanded(a, a_sizes).value(), right = expanded(b, b_sizes).value();
  const size_t last = sizes.size() - 1;
  const int64_t left_step = left.strides[last] * size_of(a.type),
                right_step = right.strides[last - 1] * size_of(b.type);
  left.sizes = right.sizes = sizes;
  left.strides[last] = 0;
  right.strides[last - 1] = 0;
  const HostTensor result = make_tensor(o.budget(), a.type, sizes);
  int64_t steps = 0;
  if (__builtin_mul_overflow(result.elements(), std::max<int64_t>(k, 1), &steps))
    throw LeftError("it takes too many steps");
  o.budget().spend(steps);
  const auto load = loader_of<double>(a.type);
  const auto store = storer_of<double>(a.type);
  for (Walk walk(sizes, {&left, &right, &result}); !walk.is_done(); walk.next()) {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i)
      sum += load(walk.at(0) + i * left_step) * load(walk.at(1) + i * right_step);
    store(walk.at(2), sum);
  }
  return result;
}

// Lists count as a row on the left and a column on the right.
Results matmul(const Operands& o) {
  HostTensor a = o.tensor("self"), b = o.tensor("other");
  if (a.rank() == 0 || b.rank() == 0) o.fail("multiplies a single element");
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a = expanded(a, {1, a.sizes[0]}).value();
  if (column) {
    b.sizes.push_back(1);
    b.strides.push_back(0);
  }
  HostTensor result = product(o, a, b);
  const auto drop = [&result](size_t dim) {
    result.sizes.erase(result.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
    result.strides.erase(result.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  };
  if (column) drop(result.rank() - 1);
  if (row) drop(result.rank() - (column ? 1 : 2));
  return {result};
}

Results matrix_product(const Operands& o) {
  const HostTensor a = o.tensor("self"), b = o.tensor("mat2");
  if (a.rank() != b.rank() || a.rank() < 2 || a.rank() > 3)
    o.fail("multiplies tensors of {} and {} dimensions", a.rank(), b.rank());
  return {product(o, a, b)};
}

constexpr EvaluatedOp kProductOps[] = {
    {"aten.matmul.default", matmul},
    {"aten.mm.default", matrix_product},
    {"aten.bmm.default", matrix_product},
};

}  // namespace

std::span<const EvaluatedOp> product_ops() {
  return kProductOps;
}

}  // namespace dstrain::exported
