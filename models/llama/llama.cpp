#include "models/llama/llama.h"

#include "models/decoder/decoder.h"

namespace dstrain {
namespace {

constexpr models::DecoderFeatures kLlamaFeatures{.attention_bias_key = true, .mlp_bias_key = true};

void build_llama(Builder& builder, const ModelConfig& config) {
  models::build_decoder(builder, config, kLlamaFeatures);
}

}  // namespace

const ModelFamily& llama() {
  static const ModelFamily family = models::decoder_family({"llama", "Llama", "LlamaForCausalLM"},
                                                           {}, kLlamaFeatures, build_llama);
  return family;
}

}  // namespace dstrain
