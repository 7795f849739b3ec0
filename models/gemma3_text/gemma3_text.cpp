#include "models/gemma3_text/gemma3_text.h"

#include "models/decoder/decoder.h"
#include "models/decoder/gguf.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kGemma3Parts{
    .norms = {.centred = true, .of_results = true},
    .biases = models::AttentionBiases::by_key,
    .windows = {.layers = models::WindowedLayers::most, .pattern_key = true},
    .rotary = {.theta = "1000000.0", .local_theta = "10000.0"},
    .scores = {.head_norms = true, .scalar_key = true, .logits_softcap = "0.0"},
    .mlp = {.activation_key = "dstrain.model.hidden_activation",
            .activation = "\"gelu_pytorch_tanh\""},
    .scaled_embedding = true};

}  // namespace

const ModelFamily& gemma3_text() {
  static const ModelFamily family =
      models::decoder_family({"gemma3_text", "Gemma 3", "Gemma3ForCausalLM"},
                             {.num_hidden_layers = "26",
                              .hidden_size = "2304",
                              .num_attention_heads = "8",
                              .vocab_size = "262208",
                              .intermediate_size = "9216",
                              .num_key_value_heads = "4",
                              .max_position_embeddings = "131072",
                              .head_dim = "256",
                              .tie_word_embeddings = "true"},
                             kGemma3Parts);
  return family;
}

models::GgufDescription gguf_of_gemma3_text(const ModelConfig& model) {
  return models::gguf_of_decoder(
      model, kGemma3Parts,
      {.architecture = "gemma3", .large_layers = 62, .whole_every = 6, .local_theta = true});
}

}  // namespace dstrain
