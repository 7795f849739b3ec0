// Sums and means of bags of rows of a table.
#include <numeric>
#include <span>
#include <utility>

#include "models/exported/fold/elements.h"
#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/choices.h"
#include "models/exported/lower/ops/lookups.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

constexpr int64_t kSumOfBag = 0, kMeanOfBag = 1, kLargestOfBag = 2;  // PyTorch's numbers of modes

// Returns how many ids each bag has, if all have as many.
std::optional<int64_t> even_size(const HostTensor* offsets, int64_t ids, int64_t bags) {
  if (!offsets || bags == 0 || ids % bags != 0) return std::nullopt;
  const int64_t size = ids / bags;
  const auto read = loader_of<int64_t>(offsets->type);
  int64_t bag = 0;
  for (Walk walk(offsets->sizes, {offsets}); !walk.is_done(); walk.next(), ++bag)
    if (read(walk.at(0)) != bag * size) return std::nullopt;
  return size;
}

// Returns the sums of a bag's rows.
Value sums_of_even(Lowering& l, const Value& rows, int64_t bags) {
  const Value apart = l.reshaped(rows, {bags, rows.shape[0] / bags, rows.shape[1]});
  return l.reduced(Reduction::sum, apart, {1}, false);
}

// Returns the bag of each id: as many as begin at it or before it, less one.
Value bag_numbers(Lowering& l, const Node& node, int64_t ids, int64_t bags) {
  Value begins = l.operand(node, "offsets");
  if (begins.shape[0] != bags) begins = slice(std::move(begins), 0, 0, bags);
  std::vector<int32_t> numbers(static_cast<size_t>(ids));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Value begun = l.pointwise(
      node, [](Formulas f) { return less_or_equal(f[1], f[0]); },
      {unsqueeze(l.list(node, "ids", {ids}, numbers), 1), begins}, ScalarType::f32);
  Value count = l.reduced(Reduction::sum, begun, {1}, false, Lowering::Gradient::none);
  count.formula = count.formula - 1;
  return l.integers(count);
}

void lower_embedding_bag(Lowering& l, const Node& node) {
  if (node.flag("scale_grad_by_freq"))
    Lowering::fail(node, "scales gradients by how often a row is used, which is not supported");
  for (size_t i = 1; i < node.outputs.size(); ++i)
    if (node.outputs[i] && l.is_used(node.outputs[i]))
      Lowering::fail(node, "gives its bags to other operators, which is not supported");
  const Value table = l.operand(node, "weight");
  Value ids = l.operand(node, "indices");
  const int64_t count = ids.shape.elements();
  ids = l.reshaped(ids, {count});
  const int64_t bags = l.shape_of(node.outputs[0])[0], mode = node.whole("mode");
  Value rows = rows_named(l, table, ids);
  Value counted = expand(number(1), {count});
  if (node.find("padding_idx") && node.has("padding_idx") && node.whole("padding_idx") >= 0) {
    const auto padding = static_cast<float>(node.whole("padding_idx"));
    counted = l.pointwise(
        node, [padding](Formulas f) { return 1 - equal(f[0], padding); }, {ids}, ScalarType::f32);
    rows = l.pointwise(
        node, [](Formulas f) { return select(f[1], f[0], 0); }, {rows, unsqueeze(counted, 1)},
        rows.type);
  }
  if (node.has("per_sample_weights"))
    rows = l.pointwise(
        node, [](Formulas f) { return f[0] * f[1]; },
        {rows, unsqueeze(l.reshaped(l.operand(node, "per_sample_weights"), {count}), 1)},
        rows.type);
  const std::optional<int64_t> size = even_size(l.constant(node, "offsets"), count, bags);
  if (mode == kLargestOfBag) {
    if (!size || !counted.operands.empty())
      Lowering::fail(node, "takes the largest of bags of different sizes, which is not supported");
    return l.set(
        node, chosen(l, node, Reduction::maximum, l.reshaped(rows, {bags, *size, rows.shape[1]}), 1)
                  .element);
  }
  Value sums, counts;
  const Value of_one = unsqueeze(counted, 1);
  if (size) {
    sums = sums_of_even(l, rows, bags);
    counts = sums_of_even(l, of_one, bags);
  } else {
    const Value bag = unsqueeze(bag_numbers(l, node, count, bags), 1);
    const auto summed = [&](const Value& values) {
      return put(l, values, {bags, values.shape[1]}, {{expand(bag, values.shape), 0}}, {-1, 1});
    };
    sums = summed(rows);
    counts = summed(of_one);
  }
  if (mode == kSumOfBag) return l.set(node, std::move(sums));
  if (mode != kMeanOfBag) Lowering::fail(node, "has the mode {}: expected 0, 1 or 2", mode);
  l.set(node,
        l.pointwise(
            node, [](Formulas f) { return f[0] / maximum(f[1], 1); }, {sums, counts}, sums.type));
}

constexpr LoweredOp kBags[] = {
    {"aten.embedding_bag.default", lower_embedding_bag},
    {"aten.embedding_bag.padding_idx", lower_embedding_bag},
};

}  // namespace

std::span<const LoweredOp> bag_operators() {
  return kBags;
}

}  // namespace dstrain::exported
