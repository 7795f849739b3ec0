#include "models/deepseek_v3/deepseek_v3.h"

#include <fmt/core.h>

#include <string>
#include <vector>

#include "models/decoder/keys.h"
#include "models/decoder/mixture.h"
#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/read/merge.h"

namespace dstrain {
namespace {

constexpr models::DecoderParts kDeepSeekV3Parts{
    .biases = models::AttentionBiases::by_key,
    .latent =
        {.query_rank = "1536", .rank = "512", .plain = "128", .rotated = "64", .values = "128"},
    .mixture = {.experts_path = "dstrain.model.n_routed_experts",
                .experts_alias = "dstrain.model.num_local_experts",
                .experts = "256",
                .per_token = "8",
                .width_path = "dstrain.model.moe_intermediate_size",
                .width = "2048",
                .normalised = "true",
                .scores = RouterScores::sigmoid,
                .groups = "8",
                .kept_groups = "4",
                .scaling = "2.5",
                .choice_bias = true,
                .rounded_weights = false,
                .shared = {.path = "dstrain.model.n_shared_experts",
                           .fallback = "1",
                           .in_experts = true,
                           .block = "shared_experts",
                           .gated = false},
                .dense_first = "3",
                .balance = {}}};

constexpr std::string_view kFurtherLayers = "num_nextn_predict_layers";

// Layers behind the others, which predict further tokens, are none of transformers' model.
std::vector<std::string> ignored(const ModelConfig& c) {
  std::vector<std::string> patterns = models::decoder_ignored(c);
  for (int64_t i = 0; i < c.integer(kFurtherLayers); ++i)
    patterns.push_back(fmt::format("layers.{}.*", c.layers() + i));
  return patterns;
}

}  // namespace

const ModelFamily& deepseek_v3() {
  static const ModelFamily family = [] {
    using models::fixed, models::harmless;
    ModelFamily all = models::mixture_family<kDeepSeekV3Parts>(
        {"deepseek_v3", "DeepSeek-V3", "DeepseekV3ForCausalLM"},
        {.num_hidden_layers = "61",
         .hidden_size = "7168",
         .num_attention_heads = "128",
         .vocab_size = "129280",
         .intermediate_size = "18432",
         .num_key_value_heads = "128",
         .max_position_embeddings = "4096"});
    all.hugging_face->ignored = ignored;
    all.hugging_face->normalise = [usual = all.hugging_face->normalise](Node& section) {
      usual(section);
      const Member* const other = section.member("num_mtp_layers");
      if (other && !section.member(kFurtherLayers))
        put(section, kFurtherLayers, Node(other->value));
    };
    all.keys.push_back({{.key = "dstrain.model.num_nextn_predict_layers",
                         .type = Type::integer,
                         .fallback = "1",
                         .note = "layers of files, behind the others, that predict further tokens: "
                                 "they are left out",
                         .min = 0,
                         .max = models::kMostLayers},
                        FactChange::irrelevant});
    std::vector<KeySpec>& fields = all.hugging_face->fields;
    fields.push_back(fixed("dstrain.model.moe_layer_freq", Type::integer, "1",
                           "layers without experts between those that have them"));
    fields.push_back(fixed("dstrain.model.scoring_func", Type::string, "\"sigmoid\"",
                           "other scores of experts"));
    fields.push_back(fixed("dstrain.model.topk_method", Type::string, "\"noaux_tc\"",
                           "another choice of experts"));
    fields.push_back(
        harmless("dstrain.model.num_mtp_layers", "another name of num_nextn_predict_layers"));
    fields.push_back(harmless("dstrain.model.output_router_logits", "there is no loss of them"));
    for (const std::string_view key :
         {"dstrain.model.aux_loss_alpha", "dstrain.model.seq_aux", "dstrain.model.ep_size"})
      fields.push_back(harmless(key, "transformers ignores it"));
    return all;
  }();
  return family;
}

}  // namespace dstrain
