#include "runtime/ir/builder/pair_loss.h"

#include <string>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/formula/losses.h"

namespace dstrain {
namespace {

// Returns -log s(x), s being the logistic function, for a label that is wrong with probability `smoothing`.
Formula negative_log_sigmoid(const Formula& x, double smoothing = 0) {
  return binary_cross_entropy_of_logit(x, 1 - static_cast<float>(smoothing));
}

// Returns the logarithm of p / (1 - p), of the logarithm of p.
Formula log_odds(const Formula& log_p) {
  return log_p - logarithm(1 - exponential(log_p));
}

class PairLossWriter {
 public:
  PairLossWriter(Builder& b, BufferId logits, BufferId targets, int64_t classes)
      : b_(b),
        objective_(b.options().objective),
        pairs_(b.options().batch),
        sums_(row_sums(b.log_probs(logits, targets, classes), Formula::input(0))) {
    if (of_means()) lengths_ = row_sums(targets, 1 - less(Formula::input(0), 0));
    if (objective_.needs_reference())
      references_ = b_.input("reference", InputRole::reference, DType::f32, {2});
    b_.keep_log_probs(sums_);
  }

  void write() {
    switch (objective_.kind) {
      case ObjectiveKind::next_token:
        break;
      case ObjectiveKind::dpo:
        return write_dpo();
      case ObjectiveKind::simpo:
        return write_simpo();
      case ObjectiveKind::orpo:
        return write_orpo();
    }
    throw InternalError("next tokens have no loss of pairs");
  }

 private:
  // Returns whether the loss is of the mean log-probability of a row's targets, instead of their sum.
  bool of_means() const {
    return objective_.kind != ObjectiveKind::dpo || objective_.loss_type == PairLoss::ipo;
  }
  float beta() const { return static_cast<float>(objective_.beta); }

  // Returns f32 (B, 2): of each row the sum of the formula's values of its tokens.
  BufferId row_sums(BufferId x, const Formula& formula) {
    const int64_t tokens = b_.program().at(x).shape.elements() / (2 * pairs_);
    const Shape space{pairs_, 2, tokens};
    return b_.reduce(Reduction::sum, formula, space, 2, {{x, dense_view(space)}}, DType::f32);
  }

  // The operands of formulas of each pair, and what they are of the chosen and the rejected answer.
  struct Answer {
    Formula log_prob{}, reference = 0, length = 1;
    Formula mean() const { return log_prob / length; }
    Formula score() const { return log_prob - reference; }
  };
  struct Pair {
    Answer chosen{}, rejected{};
    std::vector<Builder::Seen> operands{};
  };
  // Returns the values of one row of each pair.
  static Formula add_operand(Pair& pair, BufferId of_rows, int row) {
    View view{.offset = row};
    view.strides[0] = 2;
    pair.operands.push_back({of_rows, view});
    return Formula::input(static_cast<int>(pair.operands.size()) - 1);
  }
  Pair operands() const {
    Pair pair;
    for (int row = 0; row < 2; ++row) {
      Answer& answer = row == 0 ? pair.chosen : pair.rejected;
      answer.log_prob = add_operand(pair, sums_, row);
      if (references_ != kNone) answer.reference = add_operand(pair, references_, row);
      if (lengths_ != kNone) answer.length = add_operand(pair, lengths_, row);
    }
    return pair;
  }

  // Returns f32 (B): the formula's value of each pair.
  BufferId of_pairs(const Formula& formula, const Pair& pair) {
    std::vector<int> numbers(pair.operands.size());
    std::vector<Builder::Seen> read;
    for (size_t i = 0; i < numbers.size(); ++i)
      if (formula.reads(static_cast<int>(i))) {
        numbers[i] = static_cast<int>(read.size());
        read.push_back(pair.operands[i]);
      }
    return b_.map(formula.renumbered(numbers), {pairs_}, read, DType::f32);
  }
  void add_metric(const std::string& name, const Formula& formula, const Pair& pair) {
    b_.metric(of_pairs(formula, pair), LossWeight::samples, name);
  }
  void add_rewards(const Formula& chosen, const Formula& rejected, const Pair& pair) {
    add_metric("rewards/chosen", chosen, pair);
    add_metric("rewards/rejected", rejected, pair);
    add_metric("rewards/accuracies", less(rejected, chosen), pair);
    add_metric("rewards/margins", chosen - rejected, pair);
  }
  void add_log_probs(const Formula& chosen, const Formula& rejected, const Pair& pair) {
    add_metric("logps/chosen", chosen, pair);
    add_metric("logps/rejected", rejected, pair);
  }
  void add_loss(const Formula& formula, const Pair& pair) {
    b_.loss(of_pairs(formula, pair), LossWeight::samples);
  }

  void write_dpo() {
    const Pair pair = operands();
    const Answer &chosen = pair.chosen, &rejected = pair.rejected;
    add_rewards(beta() * chosen.score(), beta() * rejected.score(), pair);
    add_log_probs(chosen.log_prob, rejected.log_prob, pair);
    const Formula margin = beta() * (chosen.score() - rejected.score());
    switch (objective_.loss_type) {
      case PairLoss::sigmoid:
        return add_loss(negative_log_sigmoid(margin, objective_.label_smoothing), pair);
      case PairLoss::hinge:
        return add_loss(maximum(1 - margin, 0), pair);
      case PairLoss::ipo:
        return add_loss(squared_error(chosen.score() / chosen.length,
                                      rejected.score() / rejected.length +
                                          static_cast<float>(0.5 / objective_.beta)),
                        pair);
    }
  }

  void write_simpo() {
    const Pair pair = operands();
    const Formula chosen = beta() * pair.chosen.mean(), rejected = beta() * pair.rejected.mean();
    add_rewards(chosen, rejected, pair);
    add_log_probs(pair.chosen.mean(), pair.rejected.mean(), pair);
    add_loss(negative_log_sigmoid(chosen - rejected - static_cast<float>(objective_.simpo_gamma),
                                  objective_.label_smoothing),
             pair);
  }

  void write_orpo() {
    const Pair pair = operands();
    const Formula chosen = pair.chosen.mean(), rejected = pair.rejected.mean();
    const Formula odds = log_odds(chosen) - log_odds(rejected);
    add_rewards(beta() * chosen, beta() * rejected, pair);
    add_log_probs(chosen, rejected, pair);
    add_metric("nll_loss", -chosen, pair);
    add_metric("log_odds_ratio", -negative_log_sigmoid(odds), pair);
    add_metric("log_odds_chosen", odds, pair);
    add_loss(beta() * negative_log_sigmoid(odds) - chosen, pair);
  }

  Builder& b_;
  const Objective& objective_;
  int64_t pairs_;
  BufferId sums_, lengths_ = kNone, references_ = kNone;
};

}  // namespace

void add_pair_loss(Builder& b, BufferId logits, BufferId targets, int64_t classes) {
  PairLossWriter(b, logits, targets, classes).write();
}

}  // namespace dstrain
