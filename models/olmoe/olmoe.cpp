#include "models/olmoe/olmoe.h"

#include "models/decoder/mixture.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kOlmoeParts{
    .biases = models::AttentionBiases::by_key,
    .scores = {.whole_norms = true, .clip = "0.0"},
    .mixture = {.experts_path = "dstrain.model.num_experts",
                .experts_alias = "dstrain.model.num_local_experts",
                .experts = "64",
                .per_token = "8",
                .balance = "0.01"}};

}  // namespace

const ModelFamily& olmoe() {
  static const ModelFamily family = models::mixture_family<kOlmoeParts>(
      {"olmoe", "OLMoE", "OlmoeForCausalLM"}, {.num_hidden_layers = "16",
                                               .hidden_size = "2048",
                                               .num_attention_heads = "16",
                                               .vocab_size = "50304",
                                               .intermediate_size = "2048",
                                               .max_position_embeddings = "4096",
                                               .rms_norm_eps = "1e-05"});
  return family;
}

}  // namespace dstrain
