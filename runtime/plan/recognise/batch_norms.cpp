#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// What a relu is of: one operand, or the sum of two.
struct ReluOf {
  std::vector<BufferId> operands{};
};

std::optional<ReluOf> relu_in(const Program& program, const Instruction& op) {
  if (op.op == OpKind::activation)
    return attrs_as<ActivationAttrs>(op.attrs).activation == Activation::relu
               ? std::optional(ReluOf{{op.reads[0]}})
               : std::nullopt;
  const MapAttrs* const map = walking_map(op);
  if (!map || op.reads.size() != 2 ||
      !match(relu(Formula::input(0) + Formula::input(1)), map->formula))
    return std::nullopt;
  const Buffer& result = program.at(op.writes[0]);
  for (size_t i = 0; i < 2; ++i) {
    const Buffer& operand = program.at(op.reads[i]);
    if (!is_dense(map->views[i], map->space) || operand.dtype != result.dtype ||
        operand.shape.elements() != result.shape.elements())
      return std::nullopt;
  }
  return ReluOf{op.reads};
}

// Returns the number of the batch_norm that computes an operand which nothing else reads, if it is in the same sublayer and adds
// nothing yet.
std::optional<size_t> norm_of(const Program& program, const Sources& sources, const Instruction& op,
                              BufferId operand) {
  const Instruction* const from = sources.of(operand, op.sublayer);
  if (!from || from->op != OpKind::batch_norm || from->group != op.group ||
      from->writes[0] != operand || from->reads.size() > 3 || sources.readers(operand) != 1)
    return std::nullopt;
  const auto at = std::ranges::find_if(program.instructions, [&](const Instruction& other) {
    return other.op == OpKind::batch_norm && other.writes[0] == operand;
  });
  if (at == program.instructions.end() || attrs_as<BatchNormAttrs>(at->attrs).relu)
    return std::nullopt;
  return static_cast<size_t>(at - program.instructions.begin());
}

// Lets the norm at `first` compute the relu at `last`, where the relu was. What reads its statistics comes behind it.
void join(std::vector<Instruction>& list, size_t first, size_t last, const ReluOf& relu) {
  Instruction norm = list[first];
  auto attrs = attrs_as<BatchNormAttrs>(norm.attrs);
  attrs.relu = true;
  norm.attrs = attrs;
  if (relu.operands.size() == 2)
    norm.reads.push_back(relu.operands[relu.operands[0] == norm.writes[0] ? 1 : 0]);
  norm.writes[0] = list[last].writes[0];
  std::set<BufferId> computed(norm.writes.begin() + 1, norm.writes.end());
  std::vector<Instruction> before, behind;
  for (size_t i = first + 1; i < last; ++i) {
    const bool depends = std::ranges::any_of(
        list[i].reads, [&computed](BufferId id) { return computed.contains(id); });
    if (depends) computed.insert(list[i].writes.begin(), list[i].writes.end());
    (depends ? behind : before).push_back(list[i]);
  }
  before.push_back(norm);
  before.insert(before.end(), behind.begin(), behind.end());
  std::ranges::copy(before, list.begin() + static_cast<std::ptrdiff_t>(first));
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(last));
}

}  // namespace

void recognise_batch_norms(Program& program) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    const std::optional<ReluOf> relu = relu_in(program, op);
    if (!relu) continue;
    const Sources sources(program);
    for (const BufferId operand : relu->operands)
      if (const std::optional<size_t> norm = norm_of(program, sources, op, operand)) {
        // The loop goes on behind what has moved up by one.
        join(program.instructions, *norm, i, *relu);
        --i;
        break;
      }
  }
}

}  // namespace dstrain
