#include "models/qwen2/qwen2.h"

#include "models/decoder/decoder.h"

namespace dstrain {
namespace {

constexpr models::DecoderFeatures kQwen2Features{.qkv_bias = true, .window_layers = true};

void build_qwen2(Builder& builder, const ModelConfig& config) {
  models::build_decoder(builder, config, kQwen2Features);
}

}  // namespace

const ModelFamily& qwen2() {
  static const ModelFamily family = models::decoder_family({"qwen2", "Qwen2", "Qwen2ForCausalLM"},
                                                           {.vocab_size = "151936",
                                                            .intermediate_size = "22016",
                                                            .num_key_value_heads = "32",
                                                            .max_position_embeddings = "32768"},
                                                           kQwen2Features, build_qwen2);
  return family;
}

}  // namespace dstrain
