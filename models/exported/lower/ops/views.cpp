// Operators that see the same elements in other dimensions.
#include <algorithm>
#include <utility>

#include "models/exported/lower/operators.h"

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
    const int64_t count = l.shape_of(node.outputs[i])[d];
    l.set(node, slice(x, d, start, count), i);
    start += count;
  }
}

constexpr LoweredOp kViews[] = {
    {"aten._unsafe_view.default", lower_view},
    {"aten.alias.default", lower_same},
    {"aten.chunk.default", lower_parts},
    {"aten.clone.default", lower_same},
    {"aten.contiguous.default", lower_same},
    {"aten.detach.default",
     [](Lowering& l, const Node& node) {
       const Value x = l.operand(node, "self");
       if (x.operands.empty()) return l.set(node, x);
       l.set(node, whole(l.builder().detached(l.dense(x)), x.shape, x.type));
     }},
    {"aten.expand.default", lower_expand},
    {"aten.expand_as.default", lower_expand},
    {"aten.flatten.using_ints", lower_view},
    {"aten.narrow.default",
     [](Lowering& l, const Node& node) {
       const Value x = l.operand(node, "self");
       const int d = l.dimension(node, "dim", x.shape.rank);
       l.set(node, slice(x, d, clamped(node.whole("start"), x.shape[d]), node.whole("length")));
     }},
    {"aten.permute.default", lower_permute},
    {"aten.reshape.default", lower_view},
    {"aten.select.int", lower_select},
    {"aten.slice.Tensor", lower_slice},
    {"aten.split.Tensor", lower_parts},
    {"aten.split_with_sizes.default", lower_parts},
    {"aten.squeeze.default", lower_view},
    {"aten.squeeze.dim", lower_view},
    {"aten.squeeze.dims", lower_view},
    {"aten.t.default", lower_t},
    {"aten.transpose.int", lower_transpose},
    {"aten.unbind.int",
     [](Lowering& l, const Node& node) {
       const Value x = l.operand(node, "self");
       const int d = l.dimension(node, "dim", x.shape.rank);
       for (size_t i = 0; i < node.outputs.size(); ++i)
         l.set(node, select(x, d, static_cast<int64_t>(i)), i);
     }},
    {"aten.unflatten.int", lower_view},
    {"aten.unsqueeze.default", lower_unsqueeze},
    {"aten.view.default", lower_view},
};

}  // namespace

std::span<const LoweredOp> view_operators() {
  return kViews;
}

}  // namespace dstrain::exported
