#include "models/qwen3/qwen3.h"

#include "models/decoder/decoder.h"
#include "models/decoder/gguf.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kQwen3Parts{.biases = models::AttentionBiases::by_key,
                                           .windows = {models::WindowedLayers::by_key},
                                           .scores = {.head_norms = true}};

}  // namespace

const ModelFamily& qwen3() {
  static const ModelFamily family = models::decoder_family({"qwen3", "Qwen3", "Qwen3ForCausalLM"},
                                                           {.vocab_size = "151936",
                                                            .intermediate_size = "22016",
                                                            .num_key_value_heads = "32",
                                                            .max_position_embeddings = "32768",
                                                            .head_dim = "128"},
                                                           kQwen3Parts);
  return family;
}

models::GgufDescription gguf_of_qwen3(const ModelConfig& model) {
  return models::gguf_of_decoder(model, kQwen3Parts, {.architecture = "qwen3"});
}

}  // namespace dstrain
