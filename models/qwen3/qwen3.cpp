#include "models/qwen3/qwen3.h"

#include "models/decoder/decoder.h"

namespace dstrain {
namespace {

constexpr models::DecoderFeatures kQwen3Features{
    .attention_bias_key = true, .head_norms = true, .window_layers = true};

void build_qwen3(Builder& builder, const ModelConfig& config) {
  models::build_decoder(builder, config, kQwen3Features);
}

}  // namespace

const ModelFamily& qwen3() {
  static const ModelFamily family = models::decoder_family({"qwen3", "Qwen3", "Qwen3ForCausalLM"},
                                                           {.vocab_size = "151936",
                                                            .intermediate_size = "22016",
                                                            .num_key_value_heads = "32",
                                                            .max_position_embeddings = "32768",
                                                            .head_dim = "128"},
                                                           kQwen3Features, build_qwen3);
  return family;
}

}  // namespace dstrain
