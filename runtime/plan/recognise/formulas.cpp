#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/ir/views/broadcast.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// An op that computes a formula of whole operands, by the numbers of these.
struct NamedForm {
  OpKind op{};
  OpAttrs attrs{};
  std::vector<int> operands{};
};

std::optional<NamedForm> form_if(const Formula& pattern, const Formula& formula, OpKind op,
                                 const OpAttrs& attrs) {
  const std::optional<Matched> found = match(pattern, formula);
  if (!found) return std::nullopt;
  NamedForm form{op, attrs, {}};
  for (int i = 0; i < pattern.inputs(); ++i) form.operands.push_back(found->operand(i));
  return form;
}

// Returns the form of an operand times a constant.
std::optional<NamedForm> scaled_form(const Formula& formula) {
  const auto found = match(Formula::input(0) * Formula::input(1), formula, {1});
  if (!found) return std::nullopt;
  return NamedForm{OpKind::scale, ScaleAttrs{*found->constant(1)}, {found->operand(0)}};
}

// Returns the form of the exact gelu, alone or as a gate.
std::optional<NamedForm> exact_gelu_form(const Formula& formula) {
  constexpr int kRoot = 1, kGated = 2;
  const auto is_erf = [](const FormulaStep& step) { return step.fn == Fn::error_function; };
  if (std::ranges::none_of(formula.steps(), is_erf)) return std::nullopt;
  const Formula x = Formula::input(0), root = Formula::input(kRoot);
  const ActivationAttrs attrs{Activation::gelu_erf};
  for (const bool divides : {false, true}) {
    const Formula twice = 1 + error_function(divides ? x / root : x * root);
    for (const Formula& way : {(0.5f * x) * twice, x * (0.5f * twice), 0.5f * (x * twice),
                               (x * twice) / 2, (x / 2) * twice, x * (twice / 2)})
      for (const bool gates : {false, true}) {
        const auto found = match(gates ? way * Formula::input(kGated) : way, formula, {kRoot});
        if (!found) continue;
        const float by = *found->constant(kRoot);
        if (std::abs((divides ? 1 / by : by) - std::sqrt(0.5f)) > 1e-6f) continue;
        if (!gates) return NamedForm{OpKind::activation, attrs, {found->operand(0)}};
        return NamedForm{OpKind::gated, attrs, {found->operand(0), found->operand(kGated)}};
      }
  }
  return std::nullopt;
}

// Returns the form of cap * tanh(x / cap).
std::optional<NamedForm> capped_form(const Formula& formula) {
  const Formula x = Formula::input(0), cap = Formula::input(1), part = Formula::input(2);
  std::optional<Matched> found = match(cap * tangent(x / cap), formula, {1});
  if (!found) {
    found = match(cap * tangent(x * part), formula, {1, 2});
    if (!found || 1 / *found->constant(1) != *found->constant(2)) return std::nullopt;
  }
  const float value = *found->constant(1);
  if (!(value > 0) || std::isinf(value)) return std::nullopt;
  return NamedForm{OpKind::softcap, SoftcapAttrs{value}, {found->operand(0)}};
}

std::optional<NamedForm> form_of(const Formula& formula) {
  const Formula x = Formula::input(0), y = Formula::input(1);
  const struct {
    Formula pattern;
    OpKind op;
    OpAttrs attrs;
  } forms[] = {
      {relu(x), OpKind::activation, ActivationAttrs{Activation::relu}},
      {gelu(x), OpKind::activation, ActivationAttrs{Activation::gelu}},
      {silu(x) * y, OpKind::gated, ActivationAttrs{Activation::silu}},
      {gelu(x) * y, OpKind::gated, ActivationAttrs{Activation::gelu}},
      {x + y, OpKind::add_dropout, DropoutAttrs{.seq_len = 1}},
  };
  for (const auto& [pattern, op, attrs] : forms)
    if (std::optional<NamedForm> form = form_if(pattern, formula, op, attrs)) return form;
  if (std::optional<NamedForm> form = scaled_form(formula)) return form;
  if (std::optional<NamedForm> form = exact_gelu_form(formula)) return form;
  return capped_form(formula);
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

// Lets a sum drop elements of its second operand itself, where these come from an op that does nothing else.
void drop_in_sum(const Program& program, const Sources& sources, Instruction& op) {
  if (op.op != OpKind::add_dropout || attrs_as<DropoutAttrs>(op.attrs).dropout != 0) return;
  for (const size_t dropped : {1U, 0U}) {
    const Instruction* const from = sources.of(op.reads[dropped], op.sublayer);
    if (!from || from->op != OpKind::dropout_grad || sources.readers(op.reads[dropped]) != 1 ||
        program.at(from->reads[0]).shape != program.at(op.reads[1 - dropped]).shape)
      continue;
    op.reads = {op.reads[1 - dropped], from->reads[0]};
    op.attrs = from->attrs;
    return;
  }
}

}  // namespace

void recognise_formulas(Program& program) {
  for (Instruction& op : program.instructions) {
    const auto* const map = std::get_if<MapAttrs>(&op.attrs);
    if (!map || map->detached || !all_alike(program, op, *map)) continue;
    if (map->formula.inputs() != static_cast<int>(op.reads.size())) continue;
    std::optional<NamedForm> form = form_of(map->formula);
    if (!form) continue;
    std::vector<BufferId> reads;
    for (const int operand : form->operands)
      reads.push_back(op.reads[static_cast<size_t>(operand)]);
    op.op = form->op;
    op.attrs = std::move(form->attrs);
    op.reads = std::move(reads);
  }
  const Sources sources(program);
  for (Instruction& op : program.instructions) drop_in_sum(program, sources, op);
}

}  // namespace dstrain
