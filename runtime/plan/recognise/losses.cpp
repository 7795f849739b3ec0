#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/plan/recognise/composed.h"
#include "runtime/plan/recognise/recognise.h"

namespace dstrain {
namespace {

// The operands of the patterns. kChosen: what a take has for the target of each row: its logit, or its logarithm of a share.
struct LossOperand {
  static constexpr int kTarget = 0, kChosen = 1, kLargest = 2, kSum = 3, kLogits = 4;
};

// Returns the loss of a row in the ways in which it is written: of the target's logit, and of its logarithm of a share.
std::vector<Formula> losses_of_logits() {
  const Formula chosen = Formula::input(LossOperand::kChosen),
                most = Formula::input(LossOperand::kLargest),
                log = logarithm(Formula::input(LossOperand::kSum));
  return {(log + most) - chosen, log - (chosen - most),    log + (most - chosen),
          most + (log - chosen), -(chosen - (log + most)), -((chosen - most) - log),
          (most - chosen) + log};
}
std::vector<Formula> losses_of_shares() {
  return {-Formula::input(LossOperand::kChosen), 0 - Formula::input(LossOperand::kChosen),
          -1 * Formula::input(LossOperand::kChosen)};
}
// Returns the logarithm of a share in the ways in which it is written.
std::vector<Formula> log_shares() {
  const Formula x = Formula::input(LossOperand::kLogits),
                most = Formula::input(LossOperand::kLargest),
                log = logarithm(Formula::input(LossOperand::kSum));
  return {(x - most) - log, x - (most + log), (x - log) - most};
}

// Returns which way of writing a loss a formula is, where targets below 0 have the loss 0.
std::optional<Matched> counted_loss(const std::vector<Formula>& losses, const Formula& formula) {
  const Formula target = Formula::input(LossOperand::kTarget);
  for (const Formula& loss : losses)
    for (const Formula& counted :
         {select(less(target, 0), 0, loss), select(less(-1, target), loss, 0)})
      if (const std::optional<Matched> found = match(counted, formula)) return found;
  return std::nullopt;
}

// What a loss is of: the first `classes` columns of logits.
struct FoundLoss {
  BufferId logits = kNone, targets = kNone;
  int64_t classes = 0;
};

class Losses {
 public:
  explicit Losses(const Program& program) : program_(program), sources_(program) {}

  // Returns what a sum of losses is the cross-entropy of; nothing if it is another sum.
  std::optional<FoundLoss> cross_entropy(const Instruction& loss) const {
    const Instruction* const rows = sources_.of(loss.reads[0], loss.sublayer);
    const auto* const sum = rows ? std::get_if<ReduceAttrs>(&rows->attrs) : nullptr;
    if (!rows || (sum && (sum->kind != Reduction::sum || sum->detached))) return std::nullopt;
    const std::optional<Composed> form = composed(sources_, *rows, kNone);
    if (!form) return std::nullopt;
    auto found = counted_loss(of_logits_, form->formula);
    const bool of_logits = found.has_value();
    if (!found) found = counted_loss(of_shares_, form->formula);
    if (!found) return std::nullopt;
    const auto read = [&](int operand) {
      return form->reads[static_cast<size_t>(found->operand(operand))];
    };
    for (const View& view : form->views)
      if (!is_dense(view, form->space)) return std::nullopt;
    const BufferId targets = read(LossOperand::kTarget);
    const Instruction* const chosen = sources_.of(read(LossOperand::kChosen), loss.sublayer);
    if (!chosen || !is_labels(targets)) return std::nullopt;
    const int64_t count = form->space.elements();
    const Softmax softmax =
        of_logits ? Softmax{chosen->reads[0], read(LossOperand::kLargest), read(LossOperand::kSum)}
                  : softmax_of(chosen->reads[0], loss.sublayer, count);
    const int64_t classes = softmax.logits == kNone ? 0 : classes_of(softmax, loss.sublayer, count);
    const int64_t width = program_.at(chosen->reads[0]).shape.elements() / count;
    if (classes == 0 ||
        !takes_targets(*chosen, targets, {count, classes}, of_logits ? width : classes))
      return std::nullopt;
    return FoundLoss{softmax.logits, targets, classes};
  }

 private:
  // What a softmax of rows of logits is made of.
  struct Softmax {
    BufferId logits = kNone, largest = kNone, sum = kNone;
  };

  bool is_labels(BufferId id) const {
    const auto input = std::ranges::find(program_.inputs, id, &ProgramInput::buffer);
    return input != program_.inputs.end() && input->role == InputRole::labels;
  }

  // Returns whether an instruction takes the element of each row of `width` that the row's target names, of so many classes.
  static bool takes_targets(const Instruction& op, BufferId targets, const Shape& rows,
                            int64_t width) {
    const auto* const take = std::get_if<TakeAttrs>(&op.attrs);
    if (!take || op.op != OpKind::take || take->indices.size() != 1 || op.reads[1] != targets ||
        take->space.rank == Shape::kMaxRank)
      return false;
    const TakeAttrs::Indices& named = take->indices[0];
    Shape columns = take->space;
    columns.append(1);
    return take->space.elements() == rows[0] && named.stride == 1 && named.size == rows[1] &&
           is_dense(named.view, take->space) && is_of_rows(take->table, columns, width);
  }

  // Returns the softmax whose logarithms a buffer has; none if it has other values.
  Softmax softmax_of(BufferId shares, int32_t sublayer, int64_t rows) const {
    const Instruction* const op = sources_.of(shares, sublayer);
    if (!op || !walking_map(*op)) return {};
    for (const Instruction* const largest : reductions_read(sources_, *op, Reduction::maximum)) {
      const BufferId logits = largest->reads[0];
      const std::optional<Composed> form = composed(sources_, *op, logits);
      if (!form) continue;
      for (const Formula& pattern : shares_)
        if (const auto found = match(pattern, form->formula)) {
          const auto is = [&](int operand, auto test) {
            return test(form->views[static_cast<size_t>(found->operand(operand))]);
          };
          const auto read = [&](int operand) {
            return form->reads[static_cast<size_t>(found->operand(operand))];
          };
          const auto by_row = [&](const View& view) { return is_by_row(view, form->space); };
          const auto of_rows = [&](const View& view) {
            return is_of_rows(view, form->space, program_.at(logits).shape[-1]);
          };
          if (read(LossOperand::kLogits) == logits && is(LossOperand::kLogits, of_rows) &&
              is(LossOperand::kLargest, by_row) && is(LossOperand::kSum, by_row) &&
              form->space.elements() == rows * form->space[-1])
            return {logits, read(LossOperand::kLargest), read(LossOperand::kSum)};
        }
    }
    return {};
  }

  // Returns the number of classes of a softmax of so many rows; 0 if it is none.
  int64_t classes_of(const Softmax& softmax, int32_t sublayer, int64_t rows) const {
    const Shape shape = program_.at(softmax.logits).shape;
    const Instruction* const largest = sources_.of(softmax.largest, sublayer);
    const auto* const reduce = largest ? std::get_if<ReduceAttrs>(&largest->attrs) : nullptr;
    if (!reduce || shape.elements() != rows * shape[-1]) return 0;
    const Shape classes{rows, reduce->space[-1]};
    const Formula x = Formula::input(0), exponentials = exponential(x - Formula::input(1));
    const bool is_softmax =
        reduces_rows(sources_, largest, Reduction::maximum, x, classes, shape[-1],
                     {softmax.logits}) &&
        reduces_rows(sources_, sources_.of(softmax.sum, sublayer), Reduction::sum, exponentials,
                     classes, shape[-1], {softmax.logits, softmax.largest});
    return is_softmax ? classes[1] : 0;
  }

  const Program& program_;
  Sources sources_;
  std::vector<Formula> of_logits_ = losses_of_logits(), of_shares_ = losses_of_shares(),
                       shares_ = log_shares();
};

}  // namespace

void recognise_losses(Program& program) {
  const Losses losses(program);
  for (Instruction& op : program.instructions) {
    if (op.op != OpKind::sum_loss) continue;
    const std::optional<FoundLoss> found = losses.cross_entropy(op);
    if (!found) continue;
    const Buffer logits = program.at(found->logits);
    op.op = OpKind::cross_entropy;
    op.attrs = CrossEntropyAttrs{.classes = found->classes == logits.shape[-1] ? 0 : found->classes,
                                 .weight = attrs_as<SumLossAttrs>(op.attrs).weight};
    op.reads = {found->logits, found->targets};
    if (op.writes.size() > 1) {
      program.at(op.writes[1]).shape = logits.shape;
      program.at(op.writes[1]).dtype = logits.dtype;
    }
    if (program.logits == kNone) program.logits = found->logits;
  }
}

void overwrite_logits(Program& program) {
  const Sources sources(program);
  for (Instruction& op : program.instructions) {
    if (op.op != OpKind::cross_entropy || op.writes.size() < 2 || sources.readers(op.reads[0]) != 1)
      continue;
    const Instruction* const product = sources.of(op.reads[0], op.sublayer);
    if (product && attrs_as<ActivationAttrs>(product->attrs).activation == Activation::none)
      op.writes[1] = op.reads[0];
  }
}

}  // namespace dstrain
