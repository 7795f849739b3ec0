// Operators that see the same elements in other dimensions.
#include <algorithm>
#include <utility>

#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/lookups.h"

namespace dstrain::exported {
namespace {

void lower_same(Lowering& l, const Node& node) {
  l.set(node, l.bounded_operand(node, "self"));
}

void lower_view(Lowering& l, const Node& node) {
  l.set(node, l.reshaped(l.bounded_operand(node, "self"), l.shape_of(node.outputs[0])));
}

void lower_expand(Lowering& l, const Node& node) {
  l.set(node, expand(l.bounded_operand(node, "self"), l.shape_of(node.outputs[0])));
}

void lower_transpose(Lowering& l, const Node& node) {
  const Value x = l.bounded_operand(node, "self");
  l.set(node, transpose(x, l.dimension(node, "dim0", x.shape.rank),
                        l.dimension(node, "dim1", x.shape.rank)));
}

void lower_t(Lowering& l, const Node& node) {
  const Value x = l.bounded_operand(node, "self");
  l.set(node, x.shape.rank < 2 ? x : transpose(x, 0, 1));
}

void lower_permute(Lowering& l, const Node& node) {
  const Value x = l.bounded_operand(node, "self");
  std::vector<int> order;
  for (const int64_t d : node.wholes("dims")) order.push_back(l.dimension(node, d, x.shape.rank));
  l.set(node, permute(x, order));
}

void lower_unsqueeze(Lowering& l, const Node& node) {
  const Value x = l.bounded_operand(node, "self");
  l.set(node, unsqueeze(x, l.dimension(node, "dim", x.shape.rank + 1)));
}

// Returns a place in a dimension of `size` for one that may count from the end or be behind it.
int64_t clamped(int64_t place, int64_t size) {
  return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size);
}

void lower_slice(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int d = l.dimension(node, "dim", x.shape.rank);
  const int64_t start = node.has("start") ? clamped(node.whole("start"), x.shape[d]) : 0;
  l.set(node, slice(x, d, start, l.shape_of(node.outputs[0])[d], node.whole("step")));
}

void lower_select(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int d = l.dimension(node, "dim", x.shape.rank);
  const int64_t index = node.whole("index");
  l.set(node, select(x, d, index < 0 ? index + x.shape[d] : index));
}

// Parts of a dimension that follow one another, each an output.
void lower_parts(Lowering& l, const Node& node) {
  // What they are parts of is computed once: attention reads queries, keys and values where they are.
  const Value x = l.computed(l.operand(node, "self"));
  const int d = l.dimension(node, "dim", x.shape.rank);
  int64_t start = 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i]) Lowering::fail(node, "has an output that is none");
    const int64_t count = l.result(node, i).sizes[static_cast<size_t>(d)].value();
    if (count > 0) l.set(node, slice(x, d, start, count), i);
    start += count;
  }
}

// All dimensions in the reverse order, or the last two.
void lower_reversed(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  if (node.target == "aten.mT.default") {
    if (x.shape.rank < 2) Lowering::fail(node, "is of {}", to_string(x.shape));
    return l.set(node, transpose(x, x.shape.rank - 2, x.shape.rank - 1));
  }
  std::vector<int> order;
  for (int d = x.shape.rank - 1; d >= 0; --d) order.push_back(d);
  l.set(node, permute(x, order));
}

void lower_move(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int from = l.dimension(node, "source", x.shape.rank),
            to = l.dimension(node, "destination", x.shape.rank);
  std::vector<int> order;
  for (int d = 0; d < x.shape.rank; ++d)
    if (d != from) order.push_back(d);
  order.insert(order.begin() + to, from);
  l.set(node, permute(x, order));
}

void lower_diagonal(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int a = l.dimension(node, "dim1", x.shape.rank),
            b = l.dimension(node, "dim2", x.shape.rank);
  const Shape result = l.shape_of(node.outputs[0]);
  const int64_t offset = node.whole("offset"), columns = x.shape[b];
  std::vector<int> order;
  for (int d = 0; d < x.shape.rank; ++d)
    if (d != a && d != b) order.push_back(d);
  order.push_back(a);
  order.push_back(b);
  std::vector<int32_t> places;
  for (int64_t i = 0; i < result[-1]; ++i)
    places.push_back(static_cast<int32_t>((i + std::max<int64_t>(0, -offset)) * columns + i +
                                          std::max<int64_t>(0, offset)));
  const int64_t elements = x.shape[a] * columns;
  const Value rows = l.reshaped(permute(x, order), {x.shape.elements() / elements, elements});
  l.set(node, l.reshaped(along(l, node, "places", rows, 1, places), result));
}

// Overlapping parts of a dimension, whose elements become the last dimension.
void lower_unfold(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int d = l.dimension(node, "dimension", x.shape.rank);
  const int64_t size = node.whole("size"), step = node.whole("step");
  // A view that overlaps itself has no gradient: each element of a part is taken by its place.
  std::vector<int32_t> places;
  const int64_t parts = l.shape_of(node.outputs[0])[d];
  for (int64_t p = 0; p < parts; ++p)
    for (int64_t i = 0; i < size; ++i) places.push_back(static_cast<int32_t>(p * step + i));
  const Value all = along(l, node, "places", x, d, places);
  Shape apart;
  for (int i = 0; i < all.shape.rank; ++i) {
    apart.append(i == d ? parts : all.shape[i]);
    if (i == d) apart.append(size);
  }
  std::vector<int> order;
  for (int i = 0; i < apart.rank; ++i)
    if (i != d + 1) order.push_back(i);
  order.push_back(d + 1);
  l.set(node, permute(l.reshaped(all, apart), order));
}

constexpr LoweredOp kViews[] = {
    {"aten._unsafe_view.default", lower_view},
    {"aten.alias.default", lower_same},
    {"aten.chunk.default", lower_parts},
    {"aten.clone.default", lower_same},
    {"aten.contiguous.default", lower_same},
    {"aten.diagonal.default", lower_diagonal},
    {"aten.detach.default",
     [](Lowering& l, const Node& node) {
       const Value x = l.operand(node, "self");
       if (x.operands.empty()) return l.set(node, x);
       l.set(node, whole(l.builder().detached(l.dense(x)), x.shape, x.type));
     }},
    {"aten.expand.default", lower_expand},
    {"aten.expand_as.default", lower_expand},
    {"aten.flatten.using_ints", lower_view},
    {"aten.lift_fresh_copy.default", lower_same},
    {"aten.mT.default", lower_reversed},
    {"aten.movedim.int", lower_move},
    {"aten.narrow.default",
     [](Lowering& l, const Node& node) {
       const Value x = l.operand(node, "self");
       const int d = l.dimension(node, "dim", x.shape.rank);
       l.set(node, slice(x, d, clamped(node.whole("start"), x.shape[d]), node.whole("length")));
     }},
    {"aten.numpy_T.default", lower_reversed},
    {"aten.permute.default", lower_permute},
    {"aten.reshape.default", lower_view},
    {"aten.reshape_as.default", lower_view},
    {"aten.select.int", lower_select},
    {"aten.slice.Tensor", lower_slice},
    {"aten.split.Tensor", lower_parts},
    {"aten.split_with_sizes.default", lower_parts},
    {"aten.squeeze.default", lower_view},
    {"aten.squeeze.dim", lower_view},
    {"aten.squeeze.dims", lower_view},
    {"aten.swapaxes.default",
     [](Lowering& l, const Node& node) {
       const Value x = l.operand(node, "self");
       l.set(node, transpose(x, l.dimension(node, "axis0", x.shape.rank),
                             l.dimension(node, "axis1", x.shape.rank)));
     }},
    {"aten.t.default", lower_t},
    {"aten.tensor_split.sections", lower_parts},
    {"aten.transpose.int", lower_transpose},
    {"aten.unbind.int",
     [](Lowering& l, const Node& node) {
       const Value x = l.operand(node, "self");
       const int d = l.dimension(node, "dim", x.shape.rank);
       for (size_t i = 0; i < node.outputs.size(); ++i)
         l.set(node, select(x, d, static_cast<int64_t>(i)), i);
     }},
    {"aten.unflatten.int", lower_view},
    {"aten.unfold.default", lower_unfold},
    {"aten.unsafe_chunk.default", lower_parts},
    {"aten.unsqueeze.default", lower_unsqueeze},
    {"aten.view.default", lower_view},
    {"aten.view_as.default", lower_view},
};

}  // namespace

std::span<const LoweredOp> view_operators() {
  return kViews;
}

}  // namespace dstrain::exported
