#include "models/qwen2_moe/qwen2_moe.h"

#include "models/decoder/mixture.h"
#include "models/hugging_face/fields.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kQwen2MoeParts{
    .biases = models::AttentionBiases::inputs,
    .mixture = {
        .experts_path = "dstrain.model.num_experts",
        .experts = "60",
        .per_token = "4",
        .width_path = "dstrain.model.moe_intermediate_size",
        .width = "1408",
        .shared = {.path = "dstrain.model.shared_expert_intermediate_size", .fallback = "5632"},
        .some_layers = true}};

}  // namespace

const ModelFamily& qwen2_moe() {
  static const ModelFamily family = [] {
    ModelFamily all = models::mixture_family<kQwen2MoeParts>(
        {"qwen2_moe", "Qwen2-MoE", "Qwen2MoeForCausalLM"}, {.num_hidden_layers = "24",
                                                            .hidden_size = "2048",
                                                            .num_attention_heads = "16",
                                                            .vocab_size = "151936",
                                                            .intermediate_size = "5632",
                                                            .num_key_value_heads = "16",
                                                            .max_position_embeddings = "32768"});
    std::vector<KeySpec>& fields = all.hugging_face->fields;
    fields.push_back(models::fixed("dstrain.model.qkv_bias", Type::boolean, "true",
                                   "products of attention without biases"));
    fields.push_back(models::fixed("dstrain.model.use_sliding_window", Type::boolean, "false",
                                   "layers with a window"));
    fields.push_back(models::harmless("dstrain.model.max_window_layers", "no layer has a window"));
    return all;
  }();
  return family;
}

}  // namespace dstrain
