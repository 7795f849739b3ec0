#include "models/exported/fold/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

namespace dstrain::exported {
namespace {

std::vector<EvaluatedOp> collect_ops() {
  std::vector<EvaluatedOp> ops;
  for (const std::span<const EvaluatedOp> kind :
       {unary_ops(), binary_ops(), cast_ops(), creation_ops(), view_ops(), join_ops(), gather_ops(),
        reduction_ops(), product_ops(), sort_ops()})
    ops.insert(ops.end(), kind.begin(), kind.end());
  std::ranges::sort(ops, {}, &EvaluatedOp::target);
  return ops;
}

}  // namespace

const std::vector<EvaluatedOp>& evaluated_ops() {
  static const std::vector<EvaluatedOp> ops = collect_ops();
  return ops;
}

const EvaluatedOp* find_evaluated(std::string_view target) {
  const std::vector<EvaluatedOp>& ops = evaluated_ops();
  const auto it = std::ranges::lower_bound(ops, target, {}, &EvaluatedOp::target);
  return it != ops.end() && it->target == target ? &*it : nullptr;
}

std::vector<HostTensor> evaluate(const EvaluatedOp& op, const Operands& operands) {
  std::vector<HostTensor> values = op.evaluate(operands);
  const std::vector<TensorRef>& outputs = operands.node().outputs;
  if (values.size() != outputs.size())
    operands.fail("has {} outputs, and its operands give {}", outputs.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!outputs[i]) continue;
    const TensorInfo& stated = operands.result(i);
    const std::vector<Size> sizes(values[i].sizes.begin(), values[i].sizes.end());
    if (values[i].type != stated.type || sizes != stated.sizes)
      operands.fail("makes {} {} according to the graph, and its operands give {} {}",
                    name_of(stated.type), to_string(stated.sizes), name_of(values[i].type),
                    to_string(sizes));
  }
  return values;
}

}  // namespace dstrain::exported
