#include "models/llama/llama.h"

#include "models/decoder/decoder.h"
#include "models/decoder/gguf.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kLlamaParts{.biases = models::AttentionBiases::by_key,
                                           .mlp = {.bias_key = true}};

}  // namespace

const ModelFamily& llama() {
  static const ModelFamily family =
      models::decoder_family({"llama", "Llama", "LlamaForCausalLM"}, {}, kLlamaParts);
  return family;
}

models::GgufDescription gguf_of_llama(const ModelConfig& model) {
  return models::gguf_of_decoder(
      model, kLlamaParts,
      {.architecture = "llama", .interleaved = true, .biases = true, .rotary_factors = true});
}

}  // namespace dstrain
