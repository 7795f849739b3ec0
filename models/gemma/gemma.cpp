#include "models/gemma/gemma.h"

#include "models/decoder/decoder.h"
#include "models/decoder/gguf.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kGemmaParts{
    .norms = {.centred = true},
    .biases = models::AttentionBiases::by_key,
    .mlp = {.activation = "\"gelu_pytorch_tanh\"", .gelu_is_tanh = true},
    .scaled_embedding = true};

}  // namespace

const ModelFamily& gemma() {
  static const ModelFamily family = models::decoder_family({"gemma", "Gemma", "GemmaForCausalLM"},
                                                           {.num_hidden_layers = "28",
                                                            .hidden_size = "3072",
                                                            .num_attention_heads = "16",
                                                            .vocab_size = "256000",
                                                            .intermediate_size = "24576",
                                                            .num_key_value_heads = "16",
                                                            .max_position_embeddings = "8192",
                                                            .head_dim = "256",
                                                            .tie_word_embeddings = "true"},
                                                           kGemmaParts);
  return family;
}

models::GgufDescription gguf_of_gemma(const ModelConfig& model) {
  return models::gguf_of_decoder(model, kGemmaParts, {.architecture = "gemma"});
}

}  // namespace dstrain
