// Objective: what a run learns (dstrain.objective): the next token, from texts alone or from another model too, or which answers
// people prefer.
#pragma once

#include <cstdint>

namespace dstrain {

// The objectives of pairs of answers, of which one is preferred: DPO (Rafailov et al., 2023), SimPO (Meng et al., 2024) and
// ORPO (Hong et al., 2024); that of answers of which each is desirable or not: KTO (Ethayarajh et al., 2024); and that of a
// model that gives answers a score, by pairs again: reward (Bradley and Terry, 1952). distill: the next token, and what another
// model, the teacher, gives to the likeliest ones (Hinton et al., 2015).
enum class ObjectiveKind : uint8_t { next_token, dpo, simpo, orpo, kto, reward, distill };

// What DPO makes of the margin of a pair: -log sigmoid, the square of its distance from 1 / (2 beta) (Azar et al., 2023), or
// max(0, 1 - beta margin). What KTO's objective makes of an answer: its own loss, or that of APO-zero (D'Oosterlinck et al.,
// 2024), which needs no other answers.
enum class AnswerLoss : uint8_t { sigmoid, ipo, hinge, kto, apo_zero_unpaired };

// Settings have the names and the defaults of TRL's configurations, and kd_ratio those of torchtune's.
struct Objective {
  ObjectiveKind kind = ObjectiveKind::next_token;
  AnswerLoss loss_type = AnswerLoss::sigmoid;  // of dpo and kto
  double beta = 0.1;
  double label_smoothing = 0;  // the probability that a pair's label is wrong: sigmoid alone
  double simpo_gamma = 0.5;    // the margin that SimPO asks for
  double desirable_weight = 1, undesirable_weight = 1;  // KTO: of the losses of such answers
  double center_rewards_coefficient = 0;  // reward: of the square of a pair's sum of scores
  // distill: the part that the divergence from the teacher has in the loss, and how many tokens FILE.teacher has the teacher's
  // log-probabilities of for each place.
  double kd_ratio = 0.5;
  int64_t teacher_top_k = 64;
  bool operator==(const Objective&) const = default;

  // Returns whether a sample is a pair of answers: two rows of tokens, of which the first one is preferred.
  bool has_pairs() const { return compares_answers() && !rates_answers(); }
  // Returns whether a sample is an answer that is desirable or not, and behind it a row in which another answer follows the
  // same prompt.
  bool rates_answers() const { return kind == ObjectiveKind::kto; }
  // Returns whether the model gives a score in place of probabilities of tokens: a row's target is its last token.
  bool scores_answers() const { return kind == ObjectiveKind::reward; }
  // Returns whether the loss is of whole answers. A sample has two rows then.
  bool compares_answers() const {
    return kind != ObjectiveKind::next_token && kind != ObjectiveKind::distill;
  }
  // Returns whether the loss is the cross-entropy of next tokens alone, which can be computed in pieces of rows.
  bool has_plain_loss() const { return kind == ObjectiveKind::next_token; }
  // Returns whether samples have the log-probabilities of a teacher.
  bool has_teacher() const { return kind == ObjectiveKind::distill; }
  int64_t rows_per_sample() const { return compares_answers() ? 2 : 1; }
  // Returns whether the loss compares with the log-probabilities that the initial weights give.
  bool needs_reference() const { return kind == ObjectiveKind::dpo || kind == ObjectiveKind::kto; }
};

}  // namespace dstrain
