#include "runtime/ir/builder/distilled_loss.h"

namespace dstrain {
namespace {

// Returns the values of rows of `width` elements, from element `first` of each on: one of a row, or those of a space of more
// dimensions.
View columns_of(int64_t width, int64_t first, bool several) {
  View view{.offset = first};
  view.strides[0] = width;
  if (several) view.strides[1] = 1;
  return view;
}

}  // namespace

void add_distilled_loss(Builder& b, BufferId logits, BufferId targets, int64_t classes) {
  const Objective& objective = b.options().objective;
  const int64_t rows = b.program().at(targets).shape.elements(), k = objective.teacher_top_k;
  const int64_t tokens = rows / b.options().batch;
  // A row's target comes first, so that one pass over the logits finds all of its log-probabilities.
  const BufferId ids = b.input("teacher_ids", InputRole::teacher_ids, DType::i32, {tokens, k + 1});
  const BufferId teacher =
      b.input("teacher_log_probs", InputRole::teacher_log_probs, DType::f32, {tokens, k});
  const BufferId log_probs = b.log_probs(logits, ids, classes);
  const Shape of_teacher{rows, k};
  const Formula log_p = Formula::input(0), log_q = Formula::input(1), id = Formula::input(2);
  const BufferId divergence = b.reduce(
      Reduction::sum, select(less(id, 0), 0, exponential(log_p) * (log_p - log_q)), of_teacher, 1,
      {{teacher, dense_view(of_teacher)},
       {log_probs, columns_of(k + 1, 1, true)},
       {ids, columns_of(k + 1, 1, true)}},
      DType::f32);
  const Builder::Seen of_targets{log_probs, columns_of(k + 1, 0, false)},
      divergences{divergence, dense_view({rows})};
  b.metric(b.map(-Formula::input(0), {rows}, {of_targets}, DType::f32), LossWeight::targets,
           "ce_loss");
  b.metric(divergence, LossWeight::targets, "kd_loss");
  const auto ratio = static_cast<float>(objective.kd_ratio);
  b.loss(b.map(ratio * Formula::input(1) - (1 - ratio) * Formula::input(0), {rows},
               {of_targets, divergences}, DType::f32),
         LossWeight::targets);
}

}  // namespace dstrain
