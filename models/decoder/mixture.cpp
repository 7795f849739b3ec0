#include "models/decoder/mixture.h"

#include "models/decoder/views.h"
#include "runtime/ir/formula/formula.h"

namespace dstrain::models {
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
      balance_(b, config, part, experts_, slots_) {}

BufferId Mixture::weight(const std::string& name, int64_t rows, int64_t columns) {
  return b_.parameter(name + ".weight", {rows, columns}, Init::normal, std_);
}

RouteAttrs Mixture::routing() const {
  RouteAttrs attrs{.scores = part_.scores,
                   .normalised = part_.always_normalised || c_.flag("norm_topk_prob"),
                   .rounded = part_.rounded_weights};
  // transformers' sum of scores that may all be 0.
  if (part_.scores == RouterScores::sigmoid) attrs.epsilon = 1e-20f;
  if (!part_.scaling.empty()) attrs.scale = static_cast<float>(c_.real("routed_scaling_factor"));
  if (!part_.groups.empty()) {
    attrs.groups = c_.integer("n_group");
    attrs.kept_groups = c_.integer("topk_group");
  }
  return attrs;
}

BufferId Mixture::layer(BufferId x, const std::string& name) {
  const std::string block = name + "." + std::string(part_.block);
  const int64_t channels = c_.width();
  const BufferId scores = weight(block + ".gate", experts_, channels);
  const BufferId bias =
      part_.choice_bias
          ? b_.registered_buffer(block + ".gate.e_score_correction_bias", {experts_}, Init::zeros)
          : kNone;
  const auto routed = b_.route(x, scores, bias, slots_, routing());
  const Builder::GroupedRows groups = b_.group_rows(routed.experts, experts_);
  balance_.add_layer(routed.logits, groups.ends, bias);
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
  if (gate == kNone) return b_.map(Formula::input(0) + Formula::input(1), {y, shared});
  const Formula of = Formula::input(0) + Formula::input(1) * sigmoid(Formula::input(2));
  if (!b_.options().with_loss) return b_.map(of, {y, shared, gate});  // row by row
  const Shape space = b_.program().at(y).shape;
  const View dense = dense_view(space);
  return b_.map(of, space, {{y, dense}, {shared, dense}, {gate, along(0)}});
}

}  // namespace dstrain::models
