#include "models/mistral/mistral.h"

#include "models/decoder/decoder.h"
#include "models/decoder/gguf.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kMistralParts{.windows = {models::WindowedLayers::all}};

}  // namespace

const ModelFamily& mistral() {
  static const ModelFamily family =
      models::decoder_family({"mistral", "Mistral", "MistralForCausalLM"},
                             {.intermediate_size = "14336",
                              .num_key_value_heads = "8",
                              .max_position_embeddings = "131072"},
                             kMistralParts);
  return family;
}

models::GgufDescription gguf_of_mistral(const ModelConfig& model) {
  return models::gguf_of_decoder(
      model, kMistralParts, {.architecture = "llama", .interleaved = true, .rotary_factors = true});
}

}  // namespace dstrain
