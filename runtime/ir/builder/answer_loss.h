// The losses of answers (Objective), built of general ops over the log-probabilities of their tokens.
#pragma once

#include "runtime/ir/builder/builder.h"

namespace dstrain {

// Adds the loss of the objective in the builder's options, which compares answers, as a mean over samples, and metrics with
// TRL's names. logits (R,V) and targets i32 (R) are those of two rows of a sample; the target of a token that does not count is
// below 0. Where samples hold several documents, those that begin at the same place of both rows are a pair, and the mean is one
// over pairs (count_pairs). `classes`: columns of the logits that count; 0: all. A model that is not trained keeps the sums of the
// log-probabilities (Program::log_probs).
//
// With p the log-probability of a row's targets together, r that of the reference, n the number of targets, and c and j of
// the chosen and the rejected row:
//   dpo     m = (p_c - p_j) - (r_c - r_j); sigmoid: -(1 - e) log s(beta m) - e log s(-beta m) with the label smoothing e;
//           hinge: max(0, 1 - beta m); ipo: (m - 1 / (2 beta))^2, with p / n and r / n in place of p and r
//   simpo   the same as dpo's sigmoid, of m = p_c / n_c - p_j / n_j - gamma / beta
//   orpo    -p_c / n_c - beta log s(o_c - o_j) with the log odds o = p / n - log(1 - exp(p / n))
//   kto     w s(beta (k - m)) of a desirable answer, w s(beta (m - k)) of another one, with their weights w; of the first row
//           m = p - r, and k is the mean of p - r of the second rows of a micro-batch, at least 0, through which no gradient
//           goes back; with apo_zero_unpaired it is 0
// where s is the logistic function.
void add_answer_loss(Builder& b, BufferId logits, BufferId targets, int64_t classes);

// Adds the loss of an objective that scores answers: -log s(z_c - z_j) + coefficient (z_c + z_j)^2, z being the score of a row's
// last token, a mean over samples, or over pairs as above; and metrics with TRL's names. scores: (R, 1); targets i32 (R): of tokens below 0, but of
// the last one of a row, whatever it is there.
void add_reward_loss(Builder& b, BufferId scores, BufferId targets);

}  // namespace dstrain
