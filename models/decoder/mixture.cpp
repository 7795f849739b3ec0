#include "models/decoder/mixture.h"

#include "runtime/core/error.h"
#include "runtime/ir/formula/formula.h"

namespace dstrain::models {
namespace {

View along(int dimension) {
  View view;
  view.strides[static_cast<size_t>(dimension)] = 1;
  return view;
}

}  // namespace

Mixture::Mixture(Builder& b, const ModelConfig& config, const MixturePart& part, Activation gate,
                 float std)
    : b_(b),
      c_(config),
      part_(part),
      gate_(gate),
      std_(std),
      experts_(config.integer(part.experts_key())),
      slots_(config.integer("num_experts_per_tok")),
      width_(config.integer(part.width_key())),
      balances_(b.options().with_loss && config.flag("output_router_logits")) {
  if (balances_ && b.options().objective.kind != ObjectiveKind::next_token)
    fail_user(
        "dstrain.model.output_router_logits: the loss that keeps experts balanced is one beside "
        "the next token's: set it to false for a run that compares or scores answers");
}

BufferId Mixture::weight(const std::string& name, int64_t rows, int64_t columns) {
  return b_.parameter(name + ".weight", {rows, columns}, Init::normal, std_);
}

BufferId Mixture::layer(BufferId x, const std::string& name) {
  const std::string block = name + "." + std::string(part_.block);
  const int64_t channels = c_.width();
  const bool normalised = part_.always_normalised || c_.flag("norm_topk_prob");
  const auto routed = b_.route(x, weight(block + ".gate", experts_, channels), kNone, slots_,
                               {.normalised = normalised, .rounded = part_.rounded_weights});
  const Builder::GroupedRows groups = b_.group_rows(routed.experts, experts_);
  if (balances_) count_choices(routed.logits, groups.ends);
  const std::string all = block + ".experts.";
  const auto product = [&](BufferId rows, std::string_view of, int64_t out, int64_t in) {
    return b_.grouped_linear(rows, weight(all + std::string(of), experts_ * out, in), groups.ends);
  };
  const BufferId spread = b_.spread_rows(x, groups.places);
  const BufferId gate = product(spread, part_.gate, width_, channels);
  const BufferId up = product(spread, part_.up, width_, channels);
  const BufferId down = product(b_.gated(gate, up, gate_), part_.down, channels, width_);
  return b_.combine_rows(down, groups.places, routed.weights);
}

BufferId Mixture::add_shared(BufferId y, BufferId shared, BufferId gate) {
  const Formula of = Formula::input(0) + Formula::input(1) * sigmoid(Formula::input(2));
  if (!b_.options().with_loss) return b_.map(of, {y, shared, gate});  // row by row
  const Shape space = b_.program().at(y).shape;
  const View dense = dense_view(space);
  return b_.map(of, space, {{y, dense}, {shared, dense}, {gate, along(0)}});
}

BufferId Mixture::sum_of(BufferId before, BufferId now) {
  if (before == kNone) return now;
  const Shape space{experts_};
  return b_.map(Formula::input(0) + Formula::input(1), space,
                {{before, dense_view(space)}, {now, dense_view(space)}}, DType::f32);
}

void Mixture::count_choices(BufferId logits, BufferId ends) {
  const Formula x = Formula::input(0), y = Formula::input(1);
  const Shape of_experts{experts_};
  View before = dense_view(of_experts);
  before.offset = -1;
  before.begin[0] = 1;
  const BufferId counts =
      b_.map(x - y, of_experts, {{ends, dense_view(of_experts)}, {ends, before}}, DType::f32);
  const Shape space = b_.program().at(logits).shape, rows{space[0]};
  const View dense = dense_view(space);
  const BufferId top =
      b_.detached_reduce(Reduction::maximum, x, space, 1, {{logits, dense}}, DType::f32);
  const BufferId power =
      b_.map(exponential(x - y), space, {{logits, dense}, {top, along(0)}}, DType::f32);
  const BufferId sum = b_.reduce(Reduction::sum, x, space, 1, {{power, dense}}, DType::f32);
  const Shape turned{experts_, space[0]};
  View by_expert;
  by_expert.strides = {1, experts_};
  const BufferId shares = b_.reduce(Reduction::sum, x / y, turned, 1,
                                    {{power, by_expert}, {sum, along(1)}}, DType::f32);
  chosen_ = sum_of(chosen_, counts);
  shares_ = sum_of(shares_, shares);
  rows_ += space[0];
}

// A micro-batch counts as much as it has targets, as its cross-entropy does.
void Mixture::add_balance_loss() {
  if (!balances_ || rows_ == 0) return;
  const BufferId targets =
      b_.input("targets", InputRole::labels, DType::i32, {b_.seq_len(c_.context())});
  const Formula x = Formula::input(0), y = Formula::input(1);
  const Shape space{experts_}, labels{b_.program().at(targets).shape.elements()};
  const BufferId counted = b_.reduce(Reduction::sum, 1 - less(x, 0), labels, 0,
                                     {{targets, dense_view(labels)}}, DType::f32);
  const auto all = static_cast<float>(rows_);
  const Formula of_expert = x / all * (y / all) * Formula::input(2) * static_cast<float>(experts_);
  const BufferId loss = b_.reduce(
      Reduction::sum, of_expert, space, 0,
      {{chosen_, dense_view(space)}, {shares_, dense_view(space)}, {counted, View{}}}, DType::f32);
  b_.loss(loss, LossWeight::targets, "balance",
          static_cast<float>(c_.real("router_aux_loss_coef")));
}

}  // namespace dstrain::models
