#include "models/llama/llama.h"

#include "models/decoder/decoder.h"
#include "models/measure.h"

namespace dstrain {
namespace {

constexpr models::DecoderFeatures kLlamaFeatures{.attention_bias_key = true, .mlp_bias_key = true};

void build_llama(Builder& builder, const ModelConfig& config) {
  models::build_decoder(builder, config, kLlamaFeatures);
}

}  // namespace

const ModelFamily& llama() {
  static const ModelFamily family{
      .type = "llama",
      .title = "Llama",
      .keys = models::decoder_keys({}, kLlamaFeatures),
      .inputs =
          {{"ids", InputRole::token_ids, DType::i32, {"max_position_embeddings"}, "vocab_size"},
           {"targets", InputRole::labels, DType::i32, {"max_position_embeddings"}, "vocab_size"}},
      .layers_key = "num_hidden_layers",
      .width_key = "hidden_size",
      .heads_key = "num_attention_heads",
      .usual_tokens = 1024,
      .exceeds_context = models::decoder_exceeds_context,
      .problem = models::decoder_problem,
      .build = build_llama,
      .measure = measure_model,
      .hugging_face = models::decoder_directories("LlamaForCausalLM", kLlamaFeatures)};
  return family;
}

}  // namespace dstrain
