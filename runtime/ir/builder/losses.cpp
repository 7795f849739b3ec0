// The losses of a model.
#include <algorithm>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/ir/builder/answer_loss.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/ir/builder/distilled_loss.h"

namespace dstrain {

BufferId Builder::add_loss(const std::string& name, float weight, LossWeight by) {
  check(std::ranges::find(program_.losses, name, &ProgramLoss::name) == program_.losses.end(),
        "two losses have the name {}", name);
  check(std::ranges::count(program_.losses, false, &ProgramLoss::is_metric) <
            static_cast<std::ptrdiff_t>(kMostLosses),
        "a model has at most {} losses", kMostLosses);
  check(program_.losses.empty() || program_.loss_weight == by,
        "loss {} is a mean over something else than another", name);
  program_.loss_weight = by;
  const BufferId sum = program_.add_buffer({.name = name == "loss" ? name : "loss:" + name,
                                            .shape = {1},
                                            .dtype = DType::f64,
                                            .lifetime = Lifetime::step,
                                            .role = BufferRole::losses});
  program_.losses.push_back({.name = name, .weight = weight, .sum = sum});
  return sum;
}

void Builder::cross_entropy(BufferId logits, BufferId targets, int64_t classes,
                            const std::string& name, float weight) {
  cross_entropy(logits, targets, {.classes = classes, .name = name, .weight = weight});
}

void Builder::cross_entropy(BufferId logits, BufferId targets, const CrossEntropy& loss) {
  if (options_.objective.compares_answers()) {
    check(loss.name == "loss" && loss.weight == 1 && loss.factor == kNone,
          "a loss of answers is the only one of a model");
    return add_answer_loss(*this, logits, targets, loss.classes);
  }
  if (options_.learns_from_teacher()) {
    check(loss.name == "loss" && loss.weight == 1 && loss.factor == kNone,
          "the loss of a model with a teacher is the only one");
    return add_distilled_loss(*this, logits, targets, loss.classes);
  }
  program_.logits = logits;
  const BufferId sum = add_loss(loss.name, loss.weight, loss.by);
  const bool all = loss.classes == program_.at(logits).shape[-1];
  const CrossEntropyAttrs attrs{.classes = all ? 0 : loss.classes,
                                .weight = loss.weight,
                                .smoothing = loss.smoothing.value_or(options_.label_smoothing),
                                .z_loss = options_.z_loss};
  Instruction op{.op = OpKind::cross_entropy,
                 .accumulate = Accumulate::after_first_micro,
                 .attrs = attrs,
                 .reads = {logits, targets},
                 .writes = {sum},
                 .group = group_,
                 .sublayer = sublayer_};
  if (loss.factor != kNone) op.reads.insert(op.reads.end(), {kNone, loss.factor});
  if (options_.training) op.writes.push_back(gradient_place(logits));
  const bool in_place = op.writes.back() == logits;
  append(std::move(op));
  if (in_place) overwritten_.push_back(logits);
}

bool Builder::is_kept(BufferId logits) const {
  return std::ranges::any_of(program_.instructions, [&](const Instruction& op) {
    const auto* attrs = std::get_if<ActivationAttrs>(&op.attrs);
    return op.writes[0] == logits && attrs && attrs->activation != Activation::none;
  });
}

BufferId Builder::gradient_place(BufferId logits) {
  if (!is_kept(logits)) return logits;
  return program_.add_buffer(activation_buffer("d_logits", program_.at(logits).shape, logits));
}

BufferId Builder::log_probs(BufferId logits, BufferId targets, int64_t classes) {
  program_.logits = logits;
  const Shape& shape = program_.at(logits).shape;
  const int64_t rows = shape.elements() / shape[-1],
                several = program_.at(targets).shape.elements() / rows;
  const LogProbsAttrs attrs{.classes = classes == shape[-1] ? 0 : classes,
                            .in_place = options_.training && !is_kept(logits)};
  const BufferId y = emit(OpKind::log_probs, attrs, {logits, targets},
                          {.name = fresh("log_probs"),
                           .shape = several == 1 ? Shape{rows} : Shape{rows, several},
                           .dtype = DType::f32});
  if (attrs.in_place) overwritten_.push_back(logits);
  return y;
}

void Builder::keep_log_probs(BufferId sums) {
  if (options_.training) return;
  program_.at(sums).lifetime = Lifetime::step;
  program_.log_probs = sums;
}

void Builder::loss(BufferId x, LossWeight by, const std::string& name, float weight) {
  const BufferId sum = add_loss(name, weight, by);
  Instruction op{.op = OpKind::sum_loss,
                 .accumulate = Accumulate::after_first_micro,
                 .attrs = SumLossAttrs{weight},
                 .reads = {x},
                 .writes = {sum},
                 .group = group_,
                 .sublayer = sublayer_};
  if (options_.training)
    op.writes.push_back(program_.add_buffer(activation_buffer("d_loss", program_.at(x).shape, x)));
  append(std::move(op));
}

int Builder::metric(BufferId x, LossWeight by, const std::string& name, std::optional<int> over) {
  const int number = metric_count(x, by, name);
  program_.losses.back().metric = name;
  program_.losses.back().over = over.value_or(-1);
  return number;
}

int Builder::metric_count(BufferId x, LossWeight by, const std::string& name) {
  check(std::ranges::count(program_.losses, true, &ProgramLoss::is_metric) <
            static_cast<std::ptrdiff_t>(kMostMetrics),
        "a model has at most {} metrics", kMostMetrics);
  check(program_.losses.empty() || program_.loss_weight == by,
        "metric {} is a mean over something else than another", name);
  program_.loss_weight = by;
  const BufferId values = detached(x);
  const BufferId sum = program_.add_buffer({.name = "metric:" + name,
                                            .shape = {1},
                                            .dtype = DType::f64,
                                            .lifetime = Lifetime::step,
                                            .role = BufferRole::losses});
  program_.losses.push_back({.name = "metric:" + name, .weight = 0, .sum = sum, .is_metric = true});
  append({.op = OpKind::sum_loss,
          .accumulate = Accumulate::after_first_micro,
          .attrs = SumLossAttrs{0},
          .reads = {values},
          .writes = {sum},
          .group = group_,
          .sublayer = sublayer_});
  return static_cast<int>(program_.losses.size()) - 1;
}

void Builder::report_loss(const std::string& loss, const std::string& metric) {
  const auto found = std::ranges::find(program_.losses, loss, &ProgramLoss::name);
  check(found != program_.losses.end(), "there is no loss {}", loss);
  found->metric = metric;
}

}  // namespace dstrain
