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

// Where answers are in a micro-batch, and sums over their tokens. A sample has an answer in each of its two rows; or where rows
// hold several documents, answers that begin at the same place of both rows are a pair, and sums have an element for each place.
class Answers {
 public:
  // targets: i32, those of all rows; below 0 of tokens that do not count.
  Answers(Builder& b, BufferId targets)
      : b_(b),
        samples_(b.options().batch),
        tokens_(b.program().at(targets).shape.elements() / (2 * samples_)),
        documents_(b.documents(tokens_)) {
    if (documents_ == kNone) return;
    is_packed_ = true;
    lengths_ = sums({{targets, dense_view(tokens())}}, is_target(0));
  }

  bool are_packed() const { return is_packed_; }
  int64_t samples() const { return samples_; }
  // Returns how many values of reference a sample has.
  int64_t references() const { return is_packed_ ? 2 * tokens_ : 2; }
  // What losses are means over: samples, or pairs, which the host counts.
  LossWeight weight() const { return is_packed_ ? LossWeight::targets : LossWeight::samples; }
  // Returns 1 where an operand that has targets counts, else 0.
  static Formula is_target(int operand) { return 1 - less(Formula::input(operand), 0); }
  // Returns the index space of tokens, (samples, rows, tokens).
  Shape tokens() const { return {samples_, 2, tokens_}; }
  // Returns the index space of pairs: (samples), or (samples, places).
  Shape pairs() const { return is_packed_ ? Shape{samples_, tokens_} : Shape{samples_}; }
  // Returns the operand of formulas of pairs that has a value of the answer in one row of each.
  Builder::Seen row(BufferId of_answers, int row) const {
    View view{.offset = is_packed_ ? row * tokens_ : row};
    view.strides[0] = is_packed_ ? 2 * tokens_ : 2;
    if (is_packed_) view.strides[1] = 1;
    return {of_answers, view};
  }
  // Returns f32 (samples, 2), or (samples, 2, places): of each answer the sum of the formula's values of its tokens.
  BufferId sums(const std::vector<Builder::Seen>& operands, const Formula& formula) {
    if (!is_packed_) return b_.reduce(Reduction::sum, formula, tokens(), 2, operands, DType::f32);
    const View dense = dense_view(tokens());
    View row = dense;
    row.strides[2] = 0;
    return b_.put(b_.map(formula, tokens(), operands, DType::f32),
                  {.space = tokens(),
                   .table = row,
                   .indices = {{.view = dense, .stride = 1, .size = tokens_}}},
                  {documents_}, tokens());
  }
  // Returns the number of targets of each answer, where there may be other places than those of answers.
  BufferId lengths() const { return lengths_; }

 private:
  Builder& b_;
  int64_t samples_, tokens_;
  BufferId documents_, lengths_ = kNone;
  bool is_packed_ = false;
};

class AnswerLossWriter {
 public:
  AnswerLossWriter(Builder& b, BufferId logits, BufferId targets, int64_t classes)
      : b_(b),
        objective_(b.options().objective),
        answers_(b, targets),
        sums_(of_tokens(b.log_probs(logits, targets, classes), Formula::input(0))),
        lengths_(answers_.lengths()) {
    if (of_means() && lengths_ == kNone) lengths_ = of_tokens(targets, Answers::is_target(0));
    if (objective_.needs_reference())
      references_ =
          b_.input("reference", InputRole::reference, DType::f32, {answers_.references()});
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
    return objective_.kind != ObjectiveKind::dpo || objective_.loss_type == AnswerLoss::ipo;
  }
  float beta() const { return static_cast<float>(objective_.beta); }

  // Returns of each answer the sum of the formula's values of its tokens.
  BufferId of_tokens(BufferId x, const Formula& formula) {
    return answers_.sums({{x, dense_view(answers_.tokens())}}, formula);
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
    Formula exists = 1;  // whether there is a pair
  };
  // Returns the values of one row of each pair.
  Formula add_operand(Pair& pair, BufferId of_answers, int row) const {
    pair.operands.push_back(answers_.row(of_answers, row));
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
    if (!answers_.are_packed()) return pair;
    // Where no pair begins, formulas have values at which they and their gradients are finite, and count nothing.
    pair.exists = less(0, minimum(pair.chosen.length, pair.rejected.length));
    for (Answer* const answer : {&pair.chosen, &pair.rejected}) {
      answer->log_prob = select(pair.exists, answer->log_prob, -1);
      answer->length = of_means() ? maximum(answer->length, 1) : Formula(1);
    }
    return pair;
  }

  // Returns f32, the formula's value of each pair.
  BufferId of_pairs(const Formula& of_pair, const Pair& pair) {
    const std::vector<Builder::Seen>& operands = pair.operands;
    const Formula formula = answers_.are_packed() ? select(pair.exists, of_pair, 0) : of_pair;
    std::vector<int> numbers(operands.size());
    std::vector<Builder::Seen> read;
    for (size_t i = 0; i < numbers.size(); ++i)
      if (formula.reads(static_cast<int>(i))) {
        numbers[i] = static_cast<int>(read.size());
        read.push_back(operands[i]);
      }
    return b_.map(formula.renumbered(numbers), answers_.pairs(), read, DType::f32);
  }
  void add_metric(const std::string& name, const Formula& formula, const Pair& pair) {
    b_.metric(of_pairs(formula, pair), answers_.weight(), name);
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
    b_.loss(of_pairs(formula, pair), answers_.weight());
  }

  void write_dpo() {
    const Pair pair = operands();
    const Answer &chosen = pair.chosen, &rejected = pair.rejected;
    add_rewards(beta() * chosen.score(), beta() * rejected.score(), pair);
    add_log_probs(chosen.log_prob, rejected.log_prob, pair);
    const Formula margin = beta() * (chosen.score() - rejected.score());
    switch (objective_.loss_type) {
      case AnswerLoss::sigmoid:
        return add_loss(negative_log_sigmoid(margin, objective_.label_smoothing), pair);
      case AnswerLoss::hinge:
        return add_loss(maximum(1 - margin, 0), pair);
      case AnswerLoss::ipo:
        return add_loss(squared_error(chosen.score() / chosen.length,
                                      rejected.score() / rejected.length +
                                          static_cast<float>(0.5 / objective_.beta)),
                        pair);
      case AnswerLoss::kto:
      case AnswerLoss::apo_zero_unpaired:
        break;
    }
    throw InternalError("the loss is not one of pairs");
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
    b_.metric(of_pairs(kind * formula, pair), answers_.weight(), name, count);
  }
  // Returns f32 (1): the mean of how much more likely the model finds the second rows than its reference does.
  BufferId divergence() {
    Pair second;
    const Formula score = add_operand(second, sums_, 1) - add_operand(second, references_, 1);
    const int64_t samples = answers_.samples();
    return b_.detached_reduce(Reduction::sum, score / static_cast<float>(samples), {samples}, 0,
                              second.operands, DType::f32);
  }
  void write_kto() {
    Pair pair = operands();
    const Formula score = pair.chosen.score();
    const bool diverges = objective_.loss_type != AnswerLoss::apo_zero_unpaired;
    Formula kl = 0;
    if (diverges) {
      View one{};
      one.strides[0] = 0;
      pair.operands.push_back({divergence(), one});
      kl = maximum(Formula::input(static_cast<int>(pair.operands.size()) - 1), 0);
    }
    pair.operands.push_back({desirable_, dense_view(answers_.pairs())});
    const Formula desirable = Formula::input(static_cast<int>(pair.operands.size()) - 1);
    for (const bool wanted : {true, false}) {
      const Formula kind = wanted ? desirable : 1 - desirable;
      const std::string name = wanted ? "chosen" : "rejected";
      const int count = b_.metric_count(of_pairs(kind, pair), answers_.weight(), "count/" + name);
      add_mean_of_kind("rewards/" + name, beta() * score, kind, count, pair);
      add_mean_of_kind("logps/" + name, pair.chosen.log_prob, kind, count, pair);
    }
    if (diverges) add_metric("kl", kl, pair);
    const auto weight = [](double w) { return static_cast<float>(w); };
    const Formula below = diverges ? kl - score : -score, above = diverges ? score - kl : score;
    add_loss(
        select(less(0.5f, desirable), weight(objective_.desirable_weight) * sigmoid(beta() * below),
               weight(objective_.undesirable_weight) * sigmoid(beta() * above)),
        pair);
  }

  Builder& b_;
  const Objective& objective_;
  Answers answers_;
  BufferId sums_, lengths_, references_ = kNone, desirable_ = kNone;
};

}  // namespace

void add_reward_loss(Builder& b, BufferId scores, BufferId targets) {
  Answers answers(b, targets);
  const View dense = dense_view(answers.tokens());
  const BufferId of_answers =
      answers.sums({{scores, dense}, {targets, dense}},
                   select(less(Formula::input(1), 0), 0, Formula::input(0)));
  std::vector<Builder::Seen> operands{answers.row(of_answers, 0), answers.row(of_answers, 1)};
  const Formula chosen = Formula::input(0), rejected = Formula::input(1);
  if (answers.are_packed())
    for (const int row : {0, 1}) operands.push_back(answers.row(answers.lengths(), row));
  const auto of_pairs = [&](const Formula& formula) {
    if (!answers.are_packed()) return b.map(formula, answers.pairs(), operands, DType::f32);
    const Formula exists = less(0, minimum(Formula::input(2), Formula::input(3)));
    return b.map(select(exists, formula, 0), answers.pairs(), operands, DType::f32);
  };
  const auto metric = [&](const std::string& name, const Formula& formula) {
    b.metric(of_pairs(formula), answers.weight(), name);
  };
  metric("mean_reward", 0.5f * (chosen + rejected));
  metric("accuracy", less(rejected, chosen));
  metric("margin", chosen - rejected);
  Formula loss = negative_log_sigmoid(chosen - rejected);
  if (const auto centred = static_cast<float>(b.options().objective.center_rewards_coefficient);
      centred > 0)
    loss = loss + centred * (chosen + rejected) * (chosen + rejected);
  b.loss(of_pairs(loss), answers.weight());
}

void add_answer_loss(Builder& b, BufferId logits, BufferId targets, int64_t classes) {
  AnswerLossWriter(b, logits, targets, classes).write();
}

}  // namespace dstrain
