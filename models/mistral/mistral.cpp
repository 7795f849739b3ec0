#include "models/mistral/mistral.h"

#include "models/decoder/decoder.h"
#include "models/measure.h"

namespace dstrain {
namespace {

constexpr models::DecoderFeatures kMistralFeatures{.window = true};

void build_mistral(Builder& builder, const ModelConfig& config) {
  models::build_decoder(builder, config, kMistralFeatures);
}

}  // namespace

const ModelFamily& mistral() {
  static const ModelFamily family{
      .type = "mistral",
      .title = "Mistral",
      .keys = models::decoder_keys({.intermediate_size = "14336",
                                    .num_key_value_heads = "8",
                                    .max_position_embeddings = "131072"},
                                   kMistralFeatures),
      .inputs =
          {{"ids", InputRole::token_ids, DType::i32, {"max_position_embeddings"}, "vocab_size"},
           {"targets", InputRole::labels, DType::i32, {"max_position_embeddings"}, "vocab_size"}},
      .layers_key = "num_hidden_layers",
      .width_key = "hidden_size",
      .heads_key = "num_attention_heads",
      .usual_tokens = 1024,
      .exceeds_context = models::decoder_exceeds_context,
      .problem = models::decoder_problem,
      .build = build_mistral,
      .measure = measure_model,
      .hugging_face = models::decoder_directories("MistralForCausalLM", kMistralFeatures)};
  return family;
}

}  // namespace dstrain
