#include "models/decoder/decoder.h"

#include <fmt/core.h>

#include <cmath>
#include <optional>

#include "models/decoder/keys.h"
#include "models/decoder/latent.h"
#include "models/decoder/mixture.h"
#include "models/decoder/rotary_keys.h"
#include "models/decoder/window_keys.h"
#include "models/measure.h"
#include "models/token_head.h"
#include "models/token_inputs.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain::models {
namespace {

// The norms inside latent attention have transformers' default, whatever rms_norm_eps says.
constexpr float kLatentEps = 1e-6f;

class Decoder {
 public:
  Decoder(Builder& b, const ModelConfig& c, const DecoderParts& parts)
      : b_(b),
        c_(c),
        parts_(parts),
        width_(c.width()),
        heads_(c.integer("num_attention_heads")),
        kv_heads_(kv_heads_of(c)),
        head_size_(parts.latent.exists() ? 0 : head_size_of(c)),
        seq_len_(b.seq_len(c.context())),
        eps_(static_cast<float>(c.real("rms_norm_eps"))),
        std_(static_cast<float>(c.real("initializer_range"))),
        attention_bias_(parts.biases == AttentionBiases::by_key && c.flag("attention_bias")),
        mlp_bias_(parts.mlp.bias_key && c.flag("mlp_bias")) {}

  void build() {
    b_.unit("embedding");
    const BufferId ids = b_.input("ids", InputRole::token_ids, DType::i32, {seq_len_});
    const BufferId token = vocabulary("model.embed_tokens.weight");
    BufferId x = b_.embed(ids, token, kNone, seq_len_);
    if (parts_.scaled_embedding) x = b_.scale(x, embedding_scale());
    if (parts_.mixture.has_experts())
      mixture_.emplace(b_, c_, parts_.mixture, gate_of(c_, parts_.mlp), std_);
    for (int64_t i = 0; i < c_.layers(); ++i) x = block(x, i);
    b_.unit("head");
    x = norm(x, "model.norm", width_);
    if (mixture_) mixture_->finish();
    add_token_head(b_, c_, x,
                   {.table = c_.flag("tie_word_embeddings") ? token : kNone,
                    .std = std_,
                    .softcap = cap_of(parts_.scores.logits_softcap, "final_logit_softcapping")});
  }

 private:
  BufferId block(BufferId x, int64_t number) {
    const std::string name = b_.layer("model.layers", number, "attn");
    const bool results = parts_.norms.of_results;
    const BufferId normed = norm(x, name + ".input_layernorm", width_);
    BufferId y = parts_.latent.exists() ? latent_attention(normed, name + ".self_attn.")
                                        : attention(normed, name, number);
    if (results) y = norm(y, name + ".post_attention_layernorm", width_);
    x = b_.add_dropout(x, y, seq_len_, 0);
    b_.sublayer("mlp");
    const char* const before = results ? ".pre_feedforward_layernorm" : ".post_attention_layernorm";
    y = norm(x, name + before, width_);
    y = has_experts(c_, parts_.mixture, number)
            ? experts(y, name)
            : mlp(y, name + ".mlp.", c_.integer("intermediate_size"));
    if (results) y = norm(y, name + ".post_feedforward_layernorm", width_);
    return b_.add_dropout(x, y, seq_len_, 0);
  }

  BufferId attention(BufferId x, const std::string& layer, int64_t number) {
    const std::string name = layer + ".self_attn.";
    const bool bias = parts_.biases == AttentionBiases::inputs || attention_bias_;
    const int64_t q_width = heads_ * head_size_, kv_width = kv_heads_ * head_size_;
    BufferId q = linear(x, name + "q_proj", width_, q_width, bias);
    BufferId k = linear(x, name + "k_proj", width_, kv_width, bias);
    BufferId v = linear(x, name + "v_proj", width_, kv_width, bias);
    if (parts_.scores.head_norms || parts_.scores.whole_norms) {
      q = norm(q, name + "q_norm", parts_.scores.whole_norms ? q_width : head_size_);
      k = norm(k, name + "k_norm", parts_.scores.whole_norms ? kv_width : head_size_);
    }
    if (!parts_.scores.clip.empty())
      for (BufferId* const of : {&q, &k, &v}) *of = clipped(*of);
    const BufferId documents = b_.documents(seq_len_);
    const bool local = !parts_.rotary.local_theta.empty() && has_window(c_, parts_.windows, number);
    const RotaryAttrs rotary = local ? local_rotary_of(c_, head_size_) : rotary_of(c_, head_size_);
    q = b_.rotary(q, seq_len_, rotary, documents);
    k = b_.rotary(k, seq_len_, rotary, documents);
    const double scalar =
        parts_.scores.scalar_key ? static_cast<double>(c_.integer("query_pre_attn_scalar")) : 0;
    const BufferId y =
        b_.attention(q, k, v,
                     {.heads = heads_,
                      .kv_heads = kv_heads_,
                      .seq_len = seq_len_,
                      .dropout = c_.real("attention_dropout"),
                      .window = window_of(c_, parts_.windows, number),
                      .scale = scalar > 0 ? 1 / std::sqrt(scalar) : 0,
                      .softcap = cap_of(parts_.scores.softcap, "attn_logit_softcapping")},
                     documents);
    return linear(y, name + "o_proj", q_width, width_, attention_bias_);
  }

  BufferId latent_attention(BufferId x, const std::string& name) {
    LatentAttention latent(b_, c_);
    const int64_t between = c_.integer("q_lora_rank"), of_queries = latent.query_columns();
    const auto inner_norm = [this](BufferId of, const std::string& module, int64_t columns) {
      return b_.rms_norm(of, b_.parameter(module + ".weight", {columns}, Init::ones),
                         {.eps = kLatentEps});
    };
    BufferId q = x;
    if (between > 0) {
      q = linear(x, name + "q_a_proj", width_, between, attention_bias_);
      q = inner_norm(q, name + "q_a_layernorm", between);
    }
    q = between > 0 ? linear(q, name + "q_b_proj", between, of_queries, false)
                    : linear(x, name + "q_proj", width_, of_queries, false);
    const BufferId joint =
        linear(x, name + "kv_a_proj_with_mqa", width_, latent.joint_columns(), attention_bias_);
    const BufferId of_both =
        inner_norm(latent.latent(joint), name + "kv_a_layernorm", latent.rank());
    const BufferId expanded =
        linear(of_both, name + "kv_b_proj", latent.rank(), latent.expanded_columns(), false);
    const BufferId y = latent.attend(q, joint, expanded, seq_len_, c_.real("attention_dropout"));
    return linear(y, name + "o_proj", latent.result_columns(), width_, attention_bias_);
  }

  BufferId experts(BufferId x, const std::string& layer) {
    const BufferId y = mixture_->layer(x, layer);
    const SharedPart& shared = parts_.mixture.shared;
    if (!shared.exists()) return y;
    const std::string name = layer + ".mlp." + std::string(shared.block);
    return mixture_->add_shared(y, mlp(x, name + ".", shared_width(c_, parts_.mixture)),
                                shared.gated ? linear(x, name + "_gate", width_, 1, false) : kNone);
  }

  BufferId mlp(BufferId x, const std::string& name, int64_t hidden) {
    const BufferId gate = linear(x, name + "gate_proj", width_, hidden, mlp_bias_);
    const BufferId up = linear(x, name + "up_proj", width_, hidden, mlp_bias_);
    return linear(b_.gated(gate, up, gate_of(c_, parts_.mlp)), name + "down_proj", hidden, width_,
                  mlp_bias_);
  }

  BufferId linear(BufferId x, const std::string& name, int64_t in, int64_t out, bool bias) {
    const BufferId w = b_.parameter(name + ".weight", {out, in}, Init::normal, std_);
    return b_.linear(x, w, bias ? b_.parameter(name + ".bias", {out}, Init::zeros) : kNone,
                     Activation::none);
  }

  BufferId clipped(BufferId x) {
    const auto most = static_cast<float>(c_.real("clip_qkv"));
    return most > 0 ? b_.map(maximum(minimum(Formula::input(0), most), -most), {x}) : x;
  }

  BufferId norm(BufferId x, const std::string& name, int64_t columns) {
    const bool centred = parts_.norms.centred;
    const Init init = centred ? Init::zeros : Init::ones;
    return b_.rms_norm(x, b_.parameter(name + ".weight", {columns}, init),
                       {.eps = eps_, .centred = centred});
  }

  // Returns the value of a key of a cap, 0: none. `fallback`: its default, empty where the family has no such key.
  double cap_of(std::string_view fallback, std::string_view key) const {
    return fallback.empty() ? 0 : c_.real(key);
  }

  // Returns the root of the width in the dtype of the embedding.
  float embedding_scale() const {
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(width_)));
    switch (b_.options().dtype) {
      case DType::bf16:
        return to_float(from_float<bf16>(root));
      case DType::f16:
        return to_float(from_float<f16>(root));
      default:
        return root;
    }
  }

  BufferId vocabulary(const std::string& name) {
    return b_.vocabulary(name, {c_.vocabulary(), width_}, Init::normal, std_);
  }

  Builder& b_;
  const ModelConfig& c_;
  const DecoderParts& parts_;
  int64_t width_, heads_, kv_heads_, head_size_, seq_len_;
  float eps_, std_;
  bool attention_bias_, mlp_bias_;
  std::optional<Mixture> mixture_{};
};

}  // namespace

ModelFamily decoder_family(const DecoderNames& names, const DecoderDefaults& defaults,
                           const DecoderParts& parts) {
  return {.type = names.type,
          .title = names.title,
          .keys = decoder_keys(defaults, parts),
          .inputs = token_inputs("max_position_embeddings", "vocab_size"),
          .layers_key = "num_hidden_layers",
          .width_key = "hidden_size",
          .heads_key = "num_attention_heads",
          .kv_heads_key = "num_key_value_heads",
          .usual_tokens = 1024,
          .exceeds_context = decoder_exceeds_context,
          .problem = decoder_problem,
          .build = [parts](Builder& b, const ModelConfig& c) { Decoder(b, c, parts).build(); },
          .measure = measure_model,
          .hugging_face = decoder_directories(names.architecture, defaults, parts)};
}

}  // namespace dstrain::models
