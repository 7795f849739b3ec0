#include "models/qwen3_moe/qwen3_moe.h"

#include "models/decoder/mixture.h"
#include "models/hugging_face/fields.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kQwen3MoeParts{
    .biases = models::AttentionBiases::by_key,
    .scores = {.head_norms = true},
    .mixture = {.experts_path = "dstrain.model.num_experts",
                .experts_alias = "dstrain.model.num_local_experts",
                .experts = "128",
                .per_token = "8",
                .width_path = "dstrain.model.moe_intermediate_size",
                .width = "768",
                .some_layers = true}};

}  // namespace

const ModelFamily& qwen3_moe() {
  static const ModelFamily family = [] {
    ModelFamily all = models::mixture_family<kQwen3MoeParts>(
        {"qwen3_moe", "Qwen3-MoE", "Qwen3MoeForCausalLM"}, {.num_hidden_layers = "24",
                                                            .hidden_size = "2048",
                                                            .vocab_size = "151936",
                                                            .intermediate_size = "6144",
                                                            .num_key_value_heads = "4",
                                                            .max_position_embeddings = "32768"});
    std::vector<KeySpec>& fields = all.hugging_face->fields;
    fields.push_back(models::fixed("dstrain.model.use_sliding_window", Type::boolean, "false",
                                   "layers with a window"));
    fields.push_back(models::harmless("dstrain.model.max_window_layers", "no layer has a window"));
    return all;
  }();
  return family;
}

}  // namespace dstrain
