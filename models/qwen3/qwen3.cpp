#include "models/qwen3/qwen3.h"

#include "models/decoder/decoder.h"
#include "models/measure.h"

namespace dstrain {
namespace {

constexpr models::DecoderFeatures kQwen3Features{
    .attention_bias_key = true, .head_norms = true, .window_layers = true};

void build_qwen3(Builder& builder, const ModelConfig& config) {
  models::build_decoder(builder, config, kQwen3Features);
}

}  // namespace

const ModelFamily& qwen3() {
  static const ModelFamily family{
      .type = "qwen3",
      .title = "Qwen3",
      .keys = models::decoder_keys({.vocab_size = "151936",
                                    .intermediate_size = "22016",
                                    .num_key_value_heads = "32",
                                    .max_position_embeddings = "32768",
                                    .head_dim = "128"},
                                   kQwen3Features),
      .inputs =
          {{"ids", InputRole::token_ids, DType::i32, {"max_position_embeddings"}, "vocab_size"},
           {"targets", InputRole::labels, DType::i32, {"max_position_embeddings"}, "vocab_size"}},
      .layers_key = "num_hidden_layers",
      .width_key = "hidden_size",
      .heads_key = "num_attention_heads",
      .usual_tokens = 1024,
      .exceeds_context = models::decoder_exceeds_context,
      .problem = models::decoder_problem,
      .build = build_qwen3,
      .measure = measure_model,
      .hugging_face = models::decoder_directories("Qwen3ForCausalLM", kQwen3Features)};
  return family;
}

}  // namespace dstrain
