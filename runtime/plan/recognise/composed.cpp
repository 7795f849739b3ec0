#include "runtime/plan/recognise/composed.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "runtime/ir/formula/match.h"

namespace dstrain {
namespace {

// How many maps may follow each other.
constexpr int kMostMaps = 6;

class Composition {
 public:
  Composition(const Sources& sources, int32_t sublayer, BufferId kept, const Shape& space)
      : sources_(sources), sublayer_(sublayer), kept_(kept) {
    result_.space = space;
  }

  std::optional<Composed> of(const Formula& formula, const std::vector<BufferId>& reads,
                             const std::vector<View>& views) {
    std::vector<std::optional<Formula>> operands;
    for (size_t i = 0; i < reads.size(); ++i) operands.push_back(operand(reads[i], views[i], 0));
    const std::optional<Formula> all = substituted(formula, operands);
    if (!all) return std::nullopt;
    result_.formula = *all;
    return std::move(result_);
  }

 private:
  // Returns the formula of what a view reads; nothing if there are too many steps or operands.
  std::optional<Formula> operand(BufferId id, const View& view, int depth) {
    const Instruction* const from = sources_.of(id, sublayer_);
    const MapAttrs* const map = from ? walking_map(*from) : nullptr;
    if (map && id != kept_ && depth < kMostMaps && is_replaced(*from, view)) {
      std::vector<View> views;
      for (const View& of_map : map->views)
        if (const std::optional<View> seen = seen_through(view, {map->space, of_map}))
          views.push_back(*seen);
      if (views.size() == map->views.size()) {
        std::vector<std::optional<Formula>> operands;
        for (size_t i = 0; i < views.size(); ++i)
          operands.push_back(operand(from->reads[i], views[i], depth + 1));
        return substituted(map->formula, operands);
      }
    }
    return input(id, view);
  }

  bool is_replaced(const Instruction& map, const View& view) const {
    return kept_ == kNone || is_by_row(view, result_.space) || reads_kept(map, 0);
  }

  bool reads_kept(const Instruction& map, int depth) const {
    return std::ranges::any_of(map.reads, [&](BufferId id) {
      if (id == kept_) return true;
      const Instruction* const from = sources_.of(id, sublayer_);
      return from && walking_map(*from) && depth < kMostMaps && reads_kept(*from, depth + 1);
    });
  }

  // Returns the view of what is read through a view of a result, whose elements are those that `elements` has.
  std::optional<View> seen_through(const View& view, const SeenElements& elements) const {
    const std::optional<SeenElements> both = composed({result_.space, view}, elements);
    return both ? reshaped(both->view, both->space, result_.space) : std::nullopt;
  }

  std::optional<Formula> input(BufferId id, View view) {
    for (int d = 0; d < result_.space.rank; ++d)
      if (result_.space[d] == 1) view.strides[static_cast<size_t>(d)] = 0;
    size_t i = 0;
    while (i < result_.reads.size() && (result_.reads[i] != id || result_.views[i] != view)) ++i;
    if (i == Formula::kMostInputs) return std::nullopt;
    if (i == result_.reads.size()) {
      result_.reads.push_back(id);
      result_.views.push_back(view);
    }
    return Formula::input(static_cast<int>(i));
  }

  // Returns a formula of formulas. What asks whether an operand has an element stays as it is, so that there is none.
  static std::optional<Formula> substituted(const Formula& formula,
                                            const std::vector<std::optional<Formula>>& operands) {
    size_t steps = formula.steps().size();
    for (const std::optional<Formula>& operand : operands) {
      if (!operand) return std::nullopt;
      steps += operand->steps().size();
    }
    if (steps > Formula::kMostSteps) return std::nullopt;
    std::vector<Formula> values;
    for (const FormulaStep& step : formula.steps()) {
      if (step.fn == Fn::inside) return std::nullopt;
      const int count = operands_of(step.fn);
      if (count == 1) values.push_back(Formula::of(step.fn, {values[step.a]}));
      if (count == 2) values.push_back(Formula::of(step.fn, {values[step.a], values[step.b]}));
      if (count == 3)
        values.push_back(Formula::of(step.fn, {values[step.a], values[step.b], values[step.c]}));
      if (count == 0)
        values.push_back(step.fn == Fn::input ? *operands[step.a] : Formula(step.value));
    }
    return values.back();
  }

  const Sources& sources_;
  int32_t sublayer_;
  BufferId kept_;
  Composed result_;
};

void add_reductions(const Sources& sources, const Instruction& op, Reduction kind, int depth,
                    std::vector<const Instruction*>& found) {
  for (const BufferId id : op.reads) {
    const Instruction* const from = id == kNone ? nullptr : sources.of(id, op.sublayer);
    if (!from) continue;
    const auto* const reduce = std::get_if<ReduceAttrs>(&from->attrs);
    if (reduce && reduce->kind == kind && std::ranges::find(found, from) == found.end())
      found.push_back(from);
    if (walking_map(*from) && depth < kMostMaps)
      add_reductions(sources, *from, kind, depth + 1, found);
  }
}

}  // namespace

int Composed::operand_of(BufferId id) const {
  if (std::ranges::count(reads, id) != 1) return -1;
  return static_cast<int>(std::ranges::find(reads, id) - reads.begin());
}

std::optional<Composed> composed(const Sources& sources, const Instruction& op, BufferId kept) {
  if (const MapAttrs* const map = walking_map(op))
    return Composition(sources, op.sublayer, kept, map->space)
        .of(map->formula, op.reads, map->views);
  const auto* const reduce = std::get_if<ReduceAttrs>(&op.attrs);
  if (!reduce) return std::nullopt;
  return Composition(sources, op.sublayer, kept, reduce->space)
      .of(reduce->formula, op.reads, reduce->views);
}

std::vector<const Instruction*> reductions_read(const Sources& sources, const Instruction& op,
                                                Reduction kind) {
  std::vector<const Instruction*> found;
  add_reductions(sources, op, kind, 0, found);
  return found;
}

bool reduces_rows(const Sources& sources, const Instruction* op, Reduction kind,
                  const Formula& formula, const Shape& space, int64_t width,
                  const std::vector<BufferId>& operands) {
  const auto* const reduce = op ? std::get_if<ReduceAttrs>(&op->attrs) : nullptr;
  if (!reduce || reduce->kind != kind || (kind == Reduction::sum && reduce->detached) ||
      reduce->space.elements() != space.elements() || reduce->space[-1] != space[-1] ||
      reduce->kept != reduce->space.rank - 1)
    return false;
  const std::optional<Composed> form = composed(sources, *op, operands[0]);
  const std::optional<Matched> found = form ? match(formula, form->formula) : std::nullopt;
  if (!found || form->reads.size() != operands.size()) return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto operand = static_cast<size_t>(found->operand(static_cast<int>(i)));
    const View& view = form->views[operand];
    if (form->reads[operand] != operands[i]) return false;
    if (i == 0 ? !is_of_rows(view, form->space, width) : !is_by_row(view, form->space))
      return false;
  }
  return true;
}

}  // namespace dstrain
