#include "models/mistral/mistral.h"

#include "models/decoder/decoder.h"

namespace dstrain {
namespace {

constexpr models::DecoderFeatures kMistralFeatures{.window = true};

void build_mistral(Builder& builder, const ModelConfig& config) {
  models::build_decoder(builder, config, kMistralFeatures);
}

}  // namespace

const ModelFamily& mistral() {
  static const ModelFamily family =
      models::decoder_family({"mistral", "Mistral", "MistralForCausalLM"},
                             {.intermediate_size = "14336",
                              .num_key_value_heads = "8",
                              .max_position_embeddings = "131072"},
                             kMistralFeatures, build_mistral);
  return family;
}

}  // namespace dstrain
