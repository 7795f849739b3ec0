#include <optional>
#include <variant>

#include "runtime/ir/views/broadcast.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// An op that computes a formula of whole operands.
struct NamedForm {
  OpKind op{};
  OpAttrs attrs{};
};

// Returns the factor of a formula that is the first operand times a constant.
std::optional<float> factor_of(const Formula& formula) {
  for (const FormulaStep& step : formula.steps())
    if (step.fn == Fn::constant &&
        (formula == Formula::input(0) * step.value || formula == step.value * Formula::input(0)))
      return step.value;
  return std::nullopt;
}

std::optional<NamedForm> form_of(const Formula& formula) {
  const Formula x = Formula::input(0), y = Formula::input(1);
  if (formula == relu(x)) return NamedForm{OpKind::activation, ActivationAttrs{Activation::relu}};
  if (formula == gelu(x)) return NamedForm{OpKind::activation, ActivationAttrs{Activation::gelu}};
  if (formula == silu(x) * y) return NamedForm{OpKind::gated, ActivationAttrs{Activation::silu}};
  if (formula == x + y) return NamedForm{OpKind::add_dropout, DropoutAttrs{.seq_len = 1}};
  if (const auto factor = factor_of(formula)) return NamedForm{OpKind::scale, ScaleAttrs{*factor}};
  return std::nullopt;
}

// Returns whether all operands have the shape and the dtype of the result, and are read in its order.
bool all_alike(const Program& program, const Instruction& op, const MapAttrs& map) {
  const Buffer& result = program.at(op.writes[0]);
  if (result.dtype == DType::i32) return false;
  for (size_t i = 0; i < op.reads.size(); ++i) {
    const Buffer& operand = program.at(op.reads[i]);
    if (!map.views.empty() && !is_dense(map.views[i], map.space)) return false;
    if (operand.dtype != result.dtype ||
        broadcast_of(result.shape, operand.shape) != Broadcast::none)
      return false;
  }
  return true;
}

}  // namespace

void recognise(Program& program) {
  for (Instruction& op : program.instructions) {
    const auto* const map = std::get_if<MapAttrs>(&op.attrs);
    if (!map || map->detached || !all_alike(program, op, *map)) continue;
    if (map->formula.inputs() != static_cast<int>(op.reads.size())) continue;
    if (const std::optional<NamedForm> form = form_of(map->formula)) {
      op.op = form->op;
      op.attrs = form->attrs;
    }
  }
}

}  // namespace dstrain
