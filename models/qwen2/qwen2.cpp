#include "models/qwen2/qwen2.h"

#include "models/decoder/decoder.h"
#include "models/measure.h"

namespace dstrain {
namespace {

constexpr models::DecoderFeatures kQwen2Features{.qkv_bias = true, .window_layers = true};

void build_qwen2(Builder& builder, const ModelConfig& config) {
  models::build_decoder(builder, config, kQwen2Features);
}

}  // namespace

const ModelFamily& qwen2() {
  static const ModelFamily family{
      .type = "qwen2",
      .title = "Qwen2",
      .keys = models::decoder_keys({.vocab_size = "151936",
                                    .intermediate_size = "22016",
                                    .num_key_value_heads = "32",
                                    .max_position_embeddings = "32768"},
                                   kQwen2Features),
      .inputs =
          {{"ids", InputRole::token_ids, DType::i32, {"max_position_embeddings"}, "vocab_size"},
           {"targets", InputRole::labels, DType::i32, {"max_position_embeddings"}, "vocab_size"}},
      .layers_key = "num_hidden_layers",
      .width_key = "hidden_size",
      .heads_key = "num_attention_heads",
      .usual_tokens = 1024,
      .exceeds_context = models::decoder_exceeds_context,
      .problem = models::decoder_problem,
      .build = build_qwen2,
      .measure = measure_model,
      .hugging_face = models::decoder_directories("Qwen2ForCausalLM", kQwen2Features)};
  return family;
}

}  // namespace dstrain
