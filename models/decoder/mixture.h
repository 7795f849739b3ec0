// Mixtures of experts: where a decoder's block has several gated MLPs, of which each token chooses some. Keys and tensors have the
// names of Hugging Face's config.json and files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/decoder/decoder.h"
#include "models/decoder/expert_balance.h"
#include "models/decoder/keys.h"
#include "models/decoder/latent.h"
#include "models/measure.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain::models {

// Return a family's keys of mixtures, and the fields of its config.json that are no keys.
std::vector<ModelKey> mixture_keys(const MixturePart& part);
std::vector<KeySpec> mixture_fields(const MixturePart& part);
// Bring a section with the names of config.json into the form of the keys, and back: keys hold no lists.
void normalise_mixture(Node& section, const MixturePart& part);
void restore_mixture(Node& section, const MixturePart& part);
// Returns what is wrong with values that are legal one by one.
std::optional<KeyProblem> mixture_problem(const ModelConfig& config, const MixturePart& part);

// Lets a model of few layers and experts keep layers with experts, and groups of these (ModelFamily::shrink).
void shrink_mixture(ModelConfig& config, const MixturePart& part);
// Returns the channels of the MLP that all rows have beside their experts.
int64_t shared_width(const ModelConfig& config, const MixturePart& part);
// Returns whether a layer has experts: else it has one MLP.
bool has_experts(const ModelConfig& config, const MixturePart& part, int64_t layer);
// Returns how weight files have the experts: each of them has tensors of its own there, and one parameter has all here.
WeightMap mixture_weights(const ModelConfig& config, const MixturePart& part);

// Returns the family of decoders with these experts.
template <const DecoderParts& kParts>
ModelFamily mixture_family(const DecoderNames& names, const DecoderDefaults& defaults) {
  ModelFamily family = decoder_family(names, defaults, kParts);
  family.undivided = true;
  family.has_choice_bias = kParts.mixture.choice_bias;
  family.experts_key = kParts.mixture.experts_key();
  family.experts_per_token_key = "num_experts_per_tok";
  family.problem = [](const ModelConfig& c) {
    const auto problem = kParts.latent.exists() ? latent_problem(c) : decoder_problem(c);
    return problem ? problem : mixture_problem(c, kParts.mixture);
  };
  family.weight_map = [](const ModelConfig& c) { return mixture_weights(c, kParts.mixture); };
  if (kParts.mixture.layers_differ()) family.measure = measure_all_layers;
  family.shrink = [](ModelConfig& c) {
    if (kParts.latent.exists()) shrink_latent(c);
    shrink_mixture(c, kParts.mixture);
  };
  return family;
}

// Emits the experts of a model's layers.
class Mixture {
 public:
  // `std`: of fresh weights. What it refers to must outlive it.
  Mixture(Builder& b, const ModelConfig& config, const MixturePart& part, Activation gate,
          float std);

  // Returns what the experts of the layer with this name make of rows x.
  BufferId layer(BufferId x, const std::string& name);
  // Returns y + sigmoid(gate) * shared: `gate` has one value for a row; kNone: y + shared.
  BufferId add_shared(BufferId y, BufferId shared, BufferId gate);
  // Adds the losses and the metric of all layers together.
  void finish() { balance_.finish(); }

 private:
  BufferId weight(const std::string& name, int64_t rows, int64_t columns);
  RouteAttrs routing() const;

  Builder& b_;
  const ModelConfig& c_;
  const MixturePart& part_;
  const Activation gate_;
  const float std_;
  const int64_t experts_, slots_, width_;
  ExpertBalance balance_;
};

}  // namespace dstrain::models
