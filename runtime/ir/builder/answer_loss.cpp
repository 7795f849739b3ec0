#include "runtime/ir/builder/answer_loss.h"

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

// Returns the operand of formulas of samples that has a value of one row of each.
Builder::Seen row_of_samples(BufferId of_rows, int row) {
  View view{.offset = row};
  view.strides[0] = 2;
  return {of_rows, view};
}

class AnswerLossWriter {
 public:
  AnswerLossWriter(Builder& b, BufferId logits, BufferId targets, int64_t classes)
      : b_(b),
        objective_(b.options().objective),
        samples_(b.options().batch),
        sums_(row_sums(b.log_probs(logits, targets, classes), Formula::input(0))) {
    if (of_means()) lengths_ = row_sums(targets, 1 - less(Formula::input(0), 0));
    if (objective_.needs_reference())
      references_ = b_.input("reference", InputRole::reference, DType::f32, {2});
    if (objective_.rates_answers())
      desirable_ = b_.input("desirable", InputRole::desirable, DType::f32, {1});
    b_.keep_log_probs(sums_);
  }

  void write() {
    switch (objective_.kind) {
      case ObjectiveKind::next_token:
      case ObjectiveKind::reward:
      case ObjectiveKind::distill:
        break;
      case ObjectiveKind::dpo:
        return write_dpo();
      case ObjectiveKind::simpo:
        return write_simpo();
      case ObjectiveKind::orpo:
        return write_orpo();
      case ObjectiveKind::kto:
        return write_kto();
    }
    throw InternalError("the objective has no loss of log-probabilities");
  }

 private:
  // Returns whether the loss is of the mean log-probability of a row's targets, instead of their sum.
  bool of_means() const {
    if (objective_.rates_answers()) return false;
    return objective_.kind != ObjectiveKind::dpo || objective_.loss_type == PairLoss::ipo;
  }
  float beta() const { return static_cast<float>(objective_.beta); }

  // Returns f32 (B, 2): of each row the sum of the formula's values of its tokens.
  BufferId row_sums(BufferId x, const Formula& formula) {
    const int64_t tokens = b_.program().at(x).shape.elements() / (2 * samples_);
    const Shape space{samples_, 2, tokens};
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
    pair.operands.push_back(row_of_samples(of_rows, row));
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

  // Returns f32 (B): the formula's value of each sample.
  BufferId of_samples(const Formula& formula, const std::vector<Builder::Seen>& operands) {
    std::vector<int> numbers(operands.size());
    std::vector<Builder::Seen> read;
    for (size_t i = 0; i < numbers.size(); ++i)
      if (formula.reads(static_cast<int>(i))) {
        numbers[i] = static_cast<int>(read.size());
        read.push_back(operands[i]);
      }
    return b_.map(formula.renumbered(numbers), {samples_}, read, DType::f32);
  }
  void add_metric(const std::string& name, const Formula& formula, const Pair& pair) {
    b_.metric(of_samples(formula, pair.operands), LossWeight::samples, name);
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
    b_.loss(of_samples(formula, pair.operands), LossWeight::samples);
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

  // The mean of a formula over the samples of a kind, of which `kind` is 1 and else 0.
  void add_mean_of_kind(const std::string& name, const Formula& formula, const Formula& kind,
                        int count, const Pair& pair) {
    b_.metric(of_samples(kind * formula, pair.operands), LossWeight::samples, name, count);
  }
  // Returns f32 (1): the mean of how much more likely the model finds the second rows than its reference does.
  BufferId divergence() {
    Pair second;
    const Formula score = add_operand(second, sums_, 1) - add_operand(second, references_, 1);
    return b_.detached_reduce(Reduction::sum, score / static_cast<float>(samples_), {samples_}, 0,
                              second.operands, DType::f32);
  }
  void write_kto() {
    Pair pair = operands();
    const Formula score = pair.chosen.score();
    View one{};
    one.strides[0] = 0;
    pair.operands.push_back({divergence(), one});
    const Formula kl = maximum(Formula::input(static_cast<int>(pair.operands.size()) - 1), 0);
    pair.operands.push_back({desirable_, dense_view({samples_})});
    const Formula desirable = Formula::input(static_cast<int>(pair.operands.size()) - 1);
    for (const bool wanted : {true, false}) {
      const Formula kind = wanted ? desirable : 1 - desirable;
      const std::string name = wanted ? "chosen" : "rejected";
      const int count =
          b_.metric_count(of_samples(kind, pair.operands), LossWeight::samples, "count/" + name);
      add_mean_of_kind("rewards/" + name, beta() * score, kind, count, pair);
      add_mean_of_kind("logps/" + name, pair.chosen.log_prob, kind, count, pair);
    }
    add_metric("kl", kl, pair);
    const auto weight = [](double w) { return static_cast<float>(w); };
    add_loss(select(less(0.5f, desirable),
                    weight(objective_.desirable_weight) * sigmoid(beta() * (kl - score)),
                    weight(objective_.undesirable_weight) * sigmoid(beta() * (score - kl))),
             pair);
  }

  Builder& b_;
  const Objective& objective_;
  int64_t samples_;
  BufferId sums_, lengths_ = kNone, references_ = kNone, desirable_ = kNone;
};

}  // namespace

void add_reward_loss(Builder& b, BufferId scores, BufferId targets) {
  const int64_t samples = b.options().batch;
  const Shape space{samples, 2, b.program().at(targets).shape.elements() / (2 * samples)};
  const View dense = dense_view(space);
  const BufferId rows =
      b.reduce(Reduction::sum, select(less(Formula::input(1), 0), 0, Formula::input(0)), space, 2,
               {{scores, dense}, {targets, dense}}, DType::f32);
  const std::vector<Builder::Seen> operands{row_of_samples(rows, 0), row_of_samples(rows, 1)};
  const auto of_samples = [&](const Formula& formula) {
    return b.map(formula, {samples}, operands, DType::f32);
  };
  const Formula chosen = Formula::input(0), rejected = Formula::input(1);
  const auto metric = [&](const std::string& name, const Formula& formula) {
    b.metric(of_samples(formula), LossWeight::samples, name);
  };
  metric("mean_reward", 0.5f * (chosen + rejected));
  metric("accuracy", less(rejected, chosen));
  metric("margin", chosen - rejected);
  Formula loss = negative_log_sigmoid(chosen - rejected);
  if (const auto centred = static_cast<float>(b.options().objective.center_rewards_coefficient);
      centred > 0)
    loss = loss + centred * (chosen + rejected) * (chosen + rejected);
  b.loss(of_samples(loss), LossWeight::samples);
}

void add_answer_loss(Builder& b, BufferId logits, BufferId targets, int64_t classes) {
  AnswerLossWriter(b, logits, targets, classes).write();
}

}  // namespace dstrain
