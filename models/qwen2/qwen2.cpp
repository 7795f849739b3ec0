#include "models/qwen2/qwen2.h"

#include "models/decoder/decoder.h"
#include "models/decoder/gguf.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kQwen2Parts{.biases = models::AttentionBiases::inputs,
                                           .windows = {models::WindowedLayers::by_key}};

}  // namespace

const ModelFamily& qwen2() {
  static const ModelFamily family = models::decoder_family({"qwen2", "Qwen2", "Qwen2ForCausalLM"},
                                                           {.vocab_size = "151936",
                                                            .intermediate_size = "22016",
                                                            .num_key_value_heads = "32",
                                                            .max_position_embeddings = "32768"},
                                                           kQwen2Parts);
  return family;
}

models::GgufDescription gguf_of_qwen2(const ModelConfig& model) {
  return models::gguf_of_decoder(model, kQwen2Parts, {.architecture = "qwen2"});
}

}  // namespace dstrain
