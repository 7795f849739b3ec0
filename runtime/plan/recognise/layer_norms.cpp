#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/plan/recognise/composed.h"
#include "runtime/plan/recognise/norm_parts.h"

namespace dstrain {
namespace {

// The operands of the patterns: rows, weights, biases, the sums of rows and of squares, eps, and what the norm is added to.
struct LayerNormOperand {
  static constexpr int kRows = 0, kWeights = 1, kBias = 2, kSums = 3, kSquares = 4, kEps = 5,
                       kAdded = 6;
};

// A mean over n columns: what is added up, and the mean by the sum.
struct MeanForm {
  Formula term{}, mean{};
};

std::vector<MeanForm> mean_forms(const Formula& x, const Formula& sum, float n) {
  const float part = 1 / n;
  return {{x * part, sum}, {x / n, sum}, {x, sum * part}, {x, sum / n}};
}

// Sums of rows, and of the squares of what rows are from their mean.
struct Statistics {
  const Instruction* sums = nullptr;
  const Instruction* squares = nullptr;
  BufferId rows = kNone;
};

// Returns whether an instruction adds up the last dimension of a space, of so many columns.
bool sums_columns(const Instruction& op, int64_t columns) {
  const auto& reduce = std::get<ReduceAttrs>(op.attrs);
  return !reduce.detached && reduce.kept == reduce.space.rank - 1 && reduce.space[-1] == columns;
}

// What x is from its mean, of x and sums, and the variance, of sums of squares.
struct Deviation {
  Formula difference{}, variance{};
};

// Returns what the statistics may be for; nothing if they are no sums for a mean and a variance.
std::vector<Deviation> deviations_of(const Sources& sources, const Statistics& statistics,
                                     int64_t columns) {
  using Operand = LayerNormOperand;
  const auto& of_sums = std::get<ReduceAttrs>(statistics.sums->attrs);
  const std::optional<Composed> squares = composed(sources, *statistics.squares, statistics.rows);
  if (!squares || !is_dense(of_sums.views[0], of_sums.space)) return {};
  const int x = squares->operand_of(statistics.rows),
            sums = squares->operand_of(statistics.sums->writes[0]);
  if (squares->reads.size() != 2 || x < 0 || sums < 0 ||
      !is_dense(squares->views[static_cast<size_t>(x)], squares->space) ||
      !is_by_row(squares->views[static_cast<size_t>(sums)], squares->space))
    return {};
  const auto n = static_cast<float>(columns);
  const Formula rows = Formula::input(Operand::kRows), sum = Formula::input(Operand::kSums);
  std::vector<Deviation> result;
  for (const MeanForm& mean : mean_forms(rows, sum, n)) {
    if (!match(mean.term, of_sums.formula)) continue;
    const Formula difference = rows - mean.mean;
    for (const MeanForm& variance :
         mean_forms(difference * difference, Formula::input(Operand::kSquares), n))
      if (const auto found = match(variance.term, squares->formula);
          found && found->operand(Operand::kRows) == x && found->operand(Operand::kSums) == sums)
        result.push_back({difference, variance.mean});
  }
  return result;
}

// The operands of a norm among those of a formula.
struct LayerNormForm {
  int weights = 0, bias = 0, added = -1;
  LayerNormAttrs attrs{};
};

// Returns the norm that a formula is, of rows and sums; nothing if it is none.
std::optional<LayerNormForm> form_of(const Composed& map, const Statistics& statistics,
                                     const Deviation& deviation) {
  using Operand = LayerNormOperand;
  const Formula w = Formula::input(Operand::kWeights), b = Formula::input(Operand::kBias),
                added = Formula::input(Operand::kAdded),
                root = square_root(deviation.variance + Formula::input(Operand::kEps)),
                &difference = deviation.difference;
  for (const Formula& scaled :
       {w * (difference / root), w * (difference * (1 / root)), (w * difference) / root,
        (w * difference) * (1 / root), (w * (1 / root)) * difference, difference * (w / root)})
    for (const bool adds : {false, true}) {
      const auto found =
          match(adds ? added + (scaled + b) : scaled + b, map.formula, {Operand::kEps});
      if (!found || !(*found->constant(Operand::kEps) >= 0) ||
          found->operand(Operand::kRows) != map.operand_of(statistics.rows) ||
          found->operand(Operand::kSums) != map.operand_of(statistics.sums->writes[0]) ||
          found->operand(Operand::kSquares) != map.operand_of(statistics.squares->writes[0]))
        continue;
      return LayerNormForm{found->operand(Operand::kWeights),
                           found->operand(Operand::kBias),
                           adds ? found->operand(Operand::kAdded) : -1,
                           {*found->constant(Operand::kEps)}};
    }
  return std::nullopt;
}

std::vector<Instruction> norm_of(Program& program, const Sources& sources, const Instruction& op,
                                 const Statistics& statistics) {
  const BufferId x = statistics.rows;
  const Shape shape = program.at(x).shape;
  const int64_t columns = shape[-1];
  if (!sums_columns(*statistics.sums, columns) || !sums_columns(*statistics.squares, columns))
    return {};
  const std::vector<Deviation> deviations = deviations_of(sources, statistics, columns);
  if (deviations.empty()) return {};
  const std::optional<Composed> map = composed(sources, op, x);
  std::optional<LayerNormForm> form;
  for (size_t i = 0; map && !form && i < deviations.size(); ++i)
    form = form_of(*map, statistics, deviations[i]);
  if (!form) return {};
  const auto view = [&](int i) { return map->views[static_cast<size_t>(i)]; };
  const auto read = [&](int i) { return map->reads[static_cast<size_t>(i)]; };
  // Biases and rows that are summands alike are told apart by their views.
  if (form->added >= 0 && !is_by_column(view(form->bias), map->space))
    std::swap(form->bias, form->added);
  const auto is_column_parameter = [&](int i) {
    const Buffer& buffer = program.at(read(i));
    return buffer.parameter >= 0 && buffer.dtype == program.at(x).dtype &&
           buffer.shape.elements() == columns && is_by_column(view(i), map->space);
  };
  const auto is_sum = [&](const Instruction& sum) {
    return is_by_row(view(map->operand_of(sum.writes[0])), map->space);
  };
  if (map->space[-1] != columns || map->space.elements() != shape.elements() ||
      program.at(op.writes[0]).dtype != program.at(x).dtype ||
      !is_dense(view(map->operand_of(x)), map->space) || !is_sum(*statistics.sums) ||
      !is_sum(*statistics.squares) || !is_column_parameter(form->weights) ||
      !is_column_parameter(form->bias) ||
      (form->added >= 0 && !is_dense(view(form->added), map->space)))
    return {};
  const Shape rows{shape.elements() / columns};
  return norm_and_sum(program, op,
                      {.norm = OpKind::layer_norm,
                       .attrs = form->attrs,
                       .reads = {x, read(form->weights), read(form->bias)},
                       .statistics = {{".mean", rows}, {".rstd", rows}},
                       .added = form->added >= 0 ? read(form->added) : kNone});
}

}  // namespace

std::vector<Instruction> layer_norm_in(Program& program, const Sources& sources,
                                       const Instruction& op) {
  if (!walking_map(op)) return {};
  const std::vector<const Instruction*> sums = reductions_read(sources, op, Reduction::sum);
  for (const Instruction* const of_rows : sums)
    for (const Instruction* const of_squares : sums) {
      if (of_rows == of_squares || of_rows->reads.size() != 1) continue;
      std::vector<Instruction> found =
          norm_of(program, sources, op, {of_rows, of_squares, of_rows->reads[0]});
      if (!found.empty()) return found;
    }
  return {};
}

}  // namespace dstrain
