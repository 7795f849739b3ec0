#include "models/mistral/mistral.h"

#include "models/decoder/decoder.h"

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

}  // namespace dstrain
