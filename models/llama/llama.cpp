#include "models/llama/llama.h"

#include "models/decoder/decoder.h"

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

}  // namespace dstrain
