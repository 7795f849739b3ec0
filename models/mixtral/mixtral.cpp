#include "models/mixtral/mixtral.h"

#include "models/decoder/mixture.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kMixtralParts{
    .windows = {models::WindowedLayers::all},
    .rotary = {.theta = "1000000.0"},
    .mixture = {.experts_path = "dstrain.model.num_local_experts",
                .experts_alias = "dstrain.model.num_experts",
                .experts = "8",
                .per_token = "2",
                .block = "block_sparse_moe",
                .gate = "w1",
                .up = "w3",
                .down = "w2",
                .always_normalised = true,
                .rounded_weights = false,
                .has_jitter = true},
    .null_head_dim = true};

}  // namespace

const ModelFamily& mixtral() {
  static const ModelFamily family = models::mixture_family<kMixtralParts>(
      {"mixtral", "Mixtral", "MixtralForCausalLM"}, {.intermediate_size = "14336",
                                                     .num_key_value_heads = "8",
                                                     .max_position_embeddings = "131072",
                                                     .sliding_window = "",
                                                     .rms_norm_eps = "1e-05"});
  return family;
}

}  // namespace dstrain
