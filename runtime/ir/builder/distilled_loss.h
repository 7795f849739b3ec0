// The loss of a model that learns from another one, the teacher (Objective::has_teacher), built of general ops over
// log-probabilities.
#pragma once

#include "runtime/ir/builder/builder.h"

namespace dstrain {

// Adds the loss of each target, as a mean over targets, and its two parts as the metrics ce_loss and kd_loss:
//   (1 - r) * -log q(target) + r * sum over the teacher's tokens i of p_i (log p_i - log q_i)
// with r the objective's kd_ratio, q the model's probabilities and p those that the teacher gives to its likeliest tokens. Tokens
// that are not among them count nothing (the divergence of Kullback and Leibler, forward, cut off). logits (R,V), targets i32 (R):
// below 0 of a token that does not count. `classes`: columns of the logits that count; 0: all.
void add_distilled_loss(Builder& b, BufferId logits, BufferId targets, int64_t classes);

}  // namespace dstrain
