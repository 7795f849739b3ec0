#include "models/decoder/decoder.h"

#include <fmt/core.h>

#include "models/decoder/keys.h"
#include "models/decoder/rotary_keys.h"
#include "models/measure.h"
#include "models/token_inputs.h"
#include "runtime/ir/builder.h"

namespace dstrain::models {
namespace {

class Decoder {
 public:
  Decoder(Builder& b, const ModelConfig& c, const DecoderFeatures& features)
      : b_(b),
        c_(c),
        features_(features),
        width_(c.width()),
        heads_(c.integer("num_attention_heads")),
        kv_heads_(kv_heads_of(c)),
        head_size_(head_size_of(c)),
        seq_len_(b.seq_len(c.context())),
        eps_(static_cast<float>(c.real("rms_norm_eps"))),
        std_(static_cast<float>(c.real("initializer_range"))),
        attention_bias_(features.attention_bias_key && c.flag("attention_bias")),
        mlp_bias_(features.mlp_bias_key && c.flag("mlp_bias")),
        rotary_(rotary_of(c)) {}

  void build() {
    b_.unit("embedding");
    const BufferId ids = b_.input("ids", InputRole::token_ids, DType::i32, {seq_len_});
    const BufferId token = vocabulary("model.embed_tokens.weight");
    BufferId x = b_.embed(ids, token, kNone, seq_len_);
    for (int64_t i = 0; i < c_.layers(); ++i) x = block(x, i);
    b_.unit("head");
    x = norm(x, "model.norm", width_);
    const BufferId head = c_.flag("tie_word_embeddings") ? token : vocabulary("lm_head.weight");
    const BufferId logits = b_.linear(x, head, kNone, Activation::none);
    if (b_.options().with_loss)
      b_.cross_entropy(logits, b_.input("targets", InputRole::labels, DType::i32, {seq_len_}),
                       c_.vocabulary());
    else
      b_.output(logits);
  }

 private:
  BufferId block(BufferId x, int64_t number) {
    const std::string name = b_.layer("model.layers", number, "attn");
    x = b_.add_dropout(x, attention(norm(x, name + ".input_layernorm", width_), name, number),
                       seq_len_, 0);
    b_.sublayer("mlp");
    return b_.add_dropout(
        x, mlp(norm(x, name + ".post_attention_layernorm", width_), name + ".mlp."), seq_len_, 0);
  }

  BufferId attention(BufferId x, const std::string& layer, int64_t number) {
    const std::string name = layer + ".self_attn.";
    const bool bias = features_.qkv_bias || attention_bias_;
    const int64_t q_width = heads_ * head_size_, kv_width = kv_heads_ * head_size_;
    BufferId q = linear(x, name + "q_proj", width_, q_width, bias);
    BufferId k = linear(x, name + "k_proj", width_, kv_width, bias);
    const BufferId v = linear(x, name + "v_proj", width_, kv_width, bias);
    if (features_.head_norms) {
      q = norm(q, name + "q_norm", head_size_);
      k = norm(k, name + "k_norm", head_size_);
    }
    const BufferId documents = b_.documents(seq_len_);
    q = b_.rotary(q, seq_len_, rotary_, documents);
    k = b_.rotary(k, seq_len_, rotary_, documents);
    const BufferId y = b_.attention(q, k, v,
                                    {.heads = heads_,
                                     .kv_heads = kv_heads_,
                                     .seq_len = seq_len_,
                                     .dropout = c_.real("attention_dropout"),
                                     .window = window_of(c_, features_, number)},
                                    documents);
    return linear(y, name + "o_proj", q_width, width_, attention_bias_);
  }

  BufferId mlp(BufferId x, const std::string& name) {
    const int64_t hidden = c_.integer("intermediate_size");
    const BufferId gate = linear(x, name + "gate_proj", width_, hidden, mlp_bias_);
    const BufferId up = linear(x, name + "up_proj", width_, hidden, mlp_bias_);
    return linear(b_.gated(gate, up, Activation::silu), name + "down_proj", hidden, width_,
                  mlp_bias_);
  }

  BufferId linear(BufferId x, const std::string& name, int64_t in, int64_t out, bool bias) {
    const BufferId w = b_.parameter(name + ".weight", {out, in}, Init::normal, std_);
    return b_.linear(x, w, bias ? b_.parameter(name + ".bias", {out}, Init::zeros) : kNone,
                     Activation::none);
  }

  BufferId norm(BufferId x, const std::string& name, int64_t columns) {
    return b_.rms_norm(x, b_.parameter(name + ".weight", {columns}, Init::ones), eps_);
  }

  BufferId vocabulary(const std::string& name) {
    return b_.vocabulary(name, {c_.vocabulary(), width_}, Init::normal, std_);
  }

  Builder& b_;
  const ModelConfig& c_;
  const DecoderFeatures& features_;
  int64_t width_, heads_, kv_heads_, head_size_, seq_len_;
  float eps_, std_;
  bool attention_bias_, mlp_bias_;
  RotaryAttrs rotary_;
};

}  // namespace

ModelFamily decoder_family(const DecoderNames& names, const DecoderDefaults& defaults,
                           const DecoderFeatures& features,
                           void (*build)(Builder&, const ModelConfig&)) {
  return {.type = names.type,
          .title = names.title,
          .keys = decoder_keys(defaults, features),
          .inputs = token_inputs("max_position_embeddings", "vocab_size"),
          .layers_key = "num_hidden_layers",
          .width_key = "hidden_size",
          .heads_key = "num_attention_heads",
          .kv_heads_key = "num_key_value_heads",
          .usual_tokens = 1024,
          .exceeds_context = decoder_exceeds_context,
          .problem = decoder_problem,
          .build = build,
          .measure = measure_model,
          .hugging_face = decoder_directories(names.architecture, features)};
}

void build_decoder(Builder& builder, const ModelConfig& config, const DecoderFeatures& features) {
  Decoder(builder, config, features).build();
}

}  // namespace dstrain::models
