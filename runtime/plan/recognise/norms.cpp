#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/plan/recognise/norm_parts.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// The operands of the patterns: rows, weights, sums of squares; the number of columns or what is 1 by it, and eps; and what the norm
// is added to.
struct NormOperand {
  static constexpr int kRows = 0, kWeights = 1, kSums = 2, kCount = 3, kEps = 4, kAdded = 5;
};

struct NormPattern {
  Formula formula{};
  bool centred = false;  // weights are held minus 1
  bool divides = false;  // by the number of columns
  bool adds = false;
};

// Returns weight * x / sqrt(sum / n + eps) in the ways in which it is written.
std::vector<NormPattern> norm_patterns() {
  const Formula x = Formula::input(NormOperand::kRows), w = Formula::input(NormOperand::kWeights),
                s = Formula::input(NormOperand::kSums), n = Formula::input(NormOperand::kCount),
                eps = Formula::input(NormOperand::kEps);
  std::vector<NormPattern> patterns;
  for (const bool divides : {false, true})
    for (const bool centred : {false, true}) {
      const Formula root = square_root((divides ? s / n : s * n) + eps);
      const Formula weight = centred ? 1 + w : w;
      for (const Formula& formula :
           {weight * (x * (1 / root)), weight * (x / root), (weight * x) * (1 / root)}) {
        patterns.push_back({formula, centred, divides, false});
        patterns.push_back({Formula::input(NormOperand::kAdded) + formula, centred, divides, true});
      }
    }
  return patterns;
}

struct NormForm {
  size_t rows = 0, weights = 0, sums = 0;  // which operands
  std::optional<size_t> added{};
  RmsNormAttrs attrs{};
};

std::optional<NormForm> norm_of(const Formula& formula, int64_t columns,
                                const std::vector<NormPattern>& patterns) {
  for (const NormPattern& pattern : patterns) {
    const std::optional<Matched> found =
        match(pattern.formula, formula, {NormOperand::kCount, NormOperand::kEps});
    if (!found) continue;
    const float eps = *found->constant(NormOperand::kEps);
    const auto n = static_cast<float>(columns);
    if (!(eps >= 0) || *found->constant(NormOperand::kCount) != (pattern.divides ? n : 1 / n))
      continue;
    NormForm form{.attrs = {eps, pattern.centred}};
    form.rows = static_cast<size_t>(found->operand(NormOperand::kRows));
    form.weights = static_cast<size_t>(found->operand(NormOperand::kWeights));
    form.sums = static_cast<size_t>(found->operand(NormOperand::kSums));
    if (pattern.adds) form.added = static_cast<size_t>(found->operand(NormOperand::kAdded));
    return form;
  }
  return std::nullopt;
}

// Returns whether an instruction gives the sums of squares of all runs of `columns` elements of x.
bool sums_squares(const Instruction* op, BufferId x, int64_t elements, int64_t columns) {
  const auto* const reduce = op ? std::get_if<ReduceAttrs>(&op->attrs) : nullptr;
  if (!reduce || reduce->detached || reduce->kind != Reduction::sum) return false;
  const Formula square = Formula::input(0) * Formula::input(0);
  int64_t last = 1;
  for (int d = reduce->kept; d < reduce->space.rank; ++d) last *= reduce->space[d];
  return op->reads == std::vector{x} && reduce->formula == square && last == columns &&
         reduce->space.elements() == elements && is_dense(reduce->views[0], reduce->space);
}

// Returns the norm that an instruction computes, and the sum with another operand if it adds one; nothing if it computes another
// thing.
std::vector<Instruction> rms_norm_in(Program& program, const Sources& sources,
                                     const Instruction& op,
                                     const std::vector<NormPattern>& patterns) {
  const MapAttrs* const map = walking_map(op);
  if (!map) return {};
  const Shape& space = map->space;
  std::optional<NormForm> form = norm_of(map->formula, space[-1], patterns);
  if (!form) return {};
  // Rows and weights that are factors alike are told apart by their views.
  if (!form->attrs.centred && !is_dense(map->views[form->rows], space))
    std::swap(form->rows, form->weights);
  const BufferId x = op.reads[form->rows], weight = op.reads[form->weights], y = op.writes[0];
  const Shape shape = program.at(x).shape;
  const DType dtype = program.at(x).dtype;
  const bool same = program.at(weight).dtype == dtype && program.at(y).dtype == dtype &&
                    shape.elements() == space.elements() &&
                    program.at(weight).shape.elements() == space[-1] && shape[-1] % space[-1] == 0;
  if (!same || !is_dense(map->views[form->rows], space) ||
      !is_by_column(map->views[form->weights], space) ||
      !is_by_row(map->views[form->sums], space) ||
      !sums_squares(sources.of(op.reads[form->sums], op.sublayer), x, space.elements(), space[-1]))
    return {};
  if (form->added && !is_dense(map->views[*form->added], space)) return {};
  return norm_and_sum(
      program, op,
      {.norm = OpKind::rms_norm,
       .attrs = form->attrs,
       .reads = {x, weight},
       .statistics = {{".rstd", {shape.elements() / shape[-1], shape[-1] / space[-1]}}},
       .added = form->added ? op.reads[*form->added] : kNone});
}

}  // namespace

void recognise_norms(Program& program) {
  const std::vector<NormPattern> patterns = norm_patterns();
  const Sources sources(program);
  replace_each(program, [&](const Instruction& op) {
    std::vector<Instruction> found = rms_norm_in(program, sources, op, patterns);
    return found.empty() ? layer_norm_in(program, sources, op) : found;
  });
}

}  // namespace dstrain
