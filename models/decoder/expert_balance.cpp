#include "models/decoder/expert_balance.h"

#include "models/decoder/views.h"
#include "runtime/core/error.h"
#include "runtime/ir/formula/formula.h"

namespace dstrain::models {
namespace {

Formula first() {
  return Formula::input(0);
}
Formula second() {
  return Formula::input(1);
}

bool learns_next_token(const Builder& b) {
  return b.options().objective.kind == ObjectiveKind::next_token;
}

}  // namespace

ExpertBalance::ExpertBalance(Builder& b, const ModelConfig& config, const MixturePart& part,
                             int64_t experts, int64_t slots)
    : b_(b),
      c_(config),
      experts_(experts),
      slots_(slots),
      trains_(b.options().with_loss && b.options().training),
      has_loss_(b.options().with_loss && !part.balance.empty() &&
                config.flag("output_router_logits")) {
  if (learns_next_token(b)) return;
  if (has_loss_)
    fail_user(
        "dstrain.model.output_router_logits: the loss that keeps experts balanced is one beside "
        "the next token's: set it to false for a run that compares or scores answers");
  if (trains_ && b.options().router_z_loss > 0)
    fail_user(
        "dstrain.experts.z_loss: the loss of routers is one beside the next token's: set it to 0 "
        "for a run that compares or scores answers");
}

BufferId ExpertBalance::sum_of(BufferId before, BufferId now, const Shape& space) {
  if (before == kNone) return now;
  return b_.map(first() + second(), space, {{before, dense_view(space)}, {now, dense_view(space)}},
                DType::f32);
}

BufferId ExpertBalance::counts_of(BufferId ends) {
  const Shape of_experts{experts_};
  View before = dense_view(of_experts);
  before.offset = -1;
  before.begin[0] = 1;
  return b_.map(first() - second(), of_experts, {{ends, dense_view(of_experts)}, {ends, before}},
                DType::f32);
}

ExpertBalance::Powers ExpertBalance::powers_of(BufferId logits) {
  const Shape space = b_.program().at(logits).shape;
  const View dense = dense_view(space);
  const BufferId top =
      b_.detached_reduce(Reduction::maximum, first(), space, 1, {{logits, dense}}, DType::f32);
  return {b_.map(exponential(first() - second()), space, {{logits, dense}, {top, along(0)}},
                 DType::f32),
          top};
}

void ExpertBalance::add_shares(BufferId logits) {
  const Shape space = b_.program().at(logits).shape;
  const BufferId power = powers_of(logits).power;
  const BufferId sum =
      b_.reduce(Reduction::sum, first(), space, 1, {{power, dense_view(space)}}, DType::f32);
  const Shape turned{experts_, space[0]};
  View by_expert;
  by_expert.strides = {1, experts_};
  const BufferId shares = b_.reduce(Reduction::sum, first() / second(), turned, 1,
                                    {{power, by_expert}, {sum, along(1)}}, DType::f32);
  shares_ = sum_of(shares_, shares, {experts_});
}

// The mean over rows of the square of the logarithm of the sum of exponentials (Zoph et al., ST-MoE, 2022).
void ExpertBalance::add_squares(BufferId logits) {
  const Shape space = b_.program().at(logits).shape, rows{space[0]};
  const Powers powers = powers_of(logits);
  const BufferId sum =
      b_.reduce(Reduction::sum, first(), space, 1, {{powers.power, dense_view(space)}}, DType::f32);
  // The largest logit has no gradient of its own: what it would add and what its exponential would lose are equal.
  const Formula total = logarithm(first()) + second();
  const BufferId squares =
      b_.reduce(Reduction::sum, total * total * (1 / static_cast<float>(space[0])), rows, 0,
                {{sum, dense_view(rows)}, {powers.top, dense_view(rows)}}, DType::f32);
  squares_ = sum_of(squares_, squares, {1});
}

void ExpertBalance::add_load(BufferId counts, int64_t rows) {
  const Shape space{experts_}, one{1};
  const float mean = static_cast<float>(rows * slots_) / static_cast<float>(experts_);
  const BufferId load = b_.detached_reduce(Reduction::maximum, first() * (1 / mean), space, 0,
                                           {{counts, dense_view(space)}}, DType::f32);
  load_ = load_ == kNone ? load
                         : b_.map(maximum(first(), second()), one,
                                  {{load_, dense_view(one)}, {load, dense_view(one)}}, DType::f32);
}

void ExpertBalance::add_layer(BufferId logits, BufferId ends, BufferId bias) {
  if (!b_.options().with_loss || !learns_next_token(b_)) return;
  const int64_t rows = b_.program().at(logits).shape[0];
  const float change = b_.options().bias_update;
  if (trains_ || has_loss_) {
    const BufferId counts = counts_of(ends);
    if (has_loss_) {
      chosen_ = sum_of(chosen_, counts, {experts_});
      add_shares(logits);
    }
    if (trains_) add_load(counts, rows);
    if (bias != kNone && change > 0)
      b_.update_buffer(bias, counts, {.keep = 1, .share = change, .towards_mean = true});
  }
  if (trains_ && b_.options().router_z_loss > 0) add_squares(logits);
  rows_ += rows;
}

BufferId ExpertBalance::targets() {
  const BufferId targets =
      b_.input("targets", InputRole::labels, DType::i32, {b_.seq_len(c_.context())});
  const Shape labels{b_.program().at(targets).shape.elements()};
  return b_.reduce(Reduction::sum, 1 - less(first(), 0), labels, 0, {{targets, dense_view(labels)}},
                   DType::f32);
}

void ExpertBalance::finish() {
  if (rows_ == 0) return;
  const Shape space{experts_}, one{1};
  if (load_ != kNone) {
    const BufferId once = b_.map(first() * 0 + 1, one, {{load_, dense_view(one)}}, DType::f32);
    const int micro_batches = b_.metric_count(once, LossWeight::targets, "micro_batches");
    b_.metric(load_, LossWeight::targets, "expert_load", micro_batches);
  }
  if (!has_loss_ && squares_ == kNone) return;
  const BufferId counted = targets();
  if (has_loss_) {
    const auto all = static_cast<float>(rows_);
    const Formula of_expert =
        first() / all * (second() / all) * Formula::input(2) * static_cast<float>(experts_);
    const BufferId loss =
        b_.reduce(Reduction::sum, of_expert, space, 0,
                  {{chosen_, dense_view(space)}, {shares_, dense_view(space)}, {counted, View{}}},
                  DType::f32);
    b_.loss(loss, LossWeight::targets, "aux_loss",
            static_cast<float>(c_.real("router_aux_loss_coef")));
  }
  if (squares_ == kNone) return;
  const BufferId loss =
      b_.map(first() * second(), one, {{squares_, dense_view(one)}, {counted, dense_view(one)}},
             DType::f32);
  b_.loss(loss, LossWeight::targets, "router_z_loss", b_.options().router_z_loss);
}

}  // namespace dstrain::models
