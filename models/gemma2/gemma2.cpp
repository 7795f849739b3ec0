#include "models/gemma2/gemma2.h"

#include "models/decoder/decoder.h"
#include "models/decoder/gguf.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kGemma2Parts{
    .norms = {.centred = true, .of_results = true},
    .biases = models::AttentionBiases::by_key,
    .windows = {.layers = models::WindowedLayers::most, .whole_every = 2},
    .scores = {.scalar_key = true, .softcap = "50.0", .logits_softcap = "30.0"},
    .mlp = {.activation_key = "dstrain.model.hidden_activation",
            .activation = "\"gelu_pytorch_tanh\""},
    .scaled_embedding = true};

}  // namespace

const ModelFamily& gemma2() {
  static const ModelFamily family =
      models::decoder_family({"gemma2", "Gemma 2", "Gemma2ForCausalLM"},
                             {.num_hidden_layers = "26",
                              .hidden_size = "2304",
                              .num_attention_heads = "8",
                              .vocab_size = "256000",
                              .intermediate_size = "9216",
                              .num_key_value_heads = "4",
                              .max_position_embeddings = "8192",
                              .head_dim = "256",
                              .tie_word_embeddings = "true"},
                             kGemma2Parts);
  return family;
}

models::GgufDescription gguf_of_gemma2(const ModelConfig& model) {
  return models::gguf_of_decoder(model, kGemma2Parts,
                                 {.architecture = "gemma2", .large_layers = 46, .whole_every = 2});
}

}  // namespace dstrain
