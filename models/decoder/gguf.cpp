#include "models/decoder/gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "models/decoder/keys.h"
#include "models/decoder/rotary_keys.h"
#include "models/decoder/window_keys.h"
#include "models/gguf/gguf_rotary.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kScalar = "dstrain.model.query_pre_attn_scalar",
                           kWindow = "dstrain.model.sliding_window";

class Description {
 public:
  Description(const ModelConfig& c, const DecoderParts& parts, const GgufDecoder& known)
      : c_(c), parts_(parts), known_(known), model_{.architecture = known.architecture} {}

  GgufDescription take() {
    add_sizes();
    for (const auto add : {&Description::check_parts, &Description::add_scores,
                           &Description::add_windows, &Description::add_positions})
      if (auto problem = (this->*add)()) return *problem;
    add_names();
    return std::move(model_);
  }

 private:
  using Problem = std::optional<KeyProblem>;

  Problem problem(std::string_view key, std::string_view what) const {
    return KeyProblem{{key},
                      fmt::format("llama.cpp's architecture {} {}", known_.architecture, what)};
  }

  void add_sizes() {
    const int64_t head_size = head_size_of(c_);
    model_.head_size = head_size;
    model_.add_size("vocab_size", c_.vocabulary());
    model_.add_size("embedding_length", c_.width());
    model_.add_size("block_count", c_.layers());
    model_.add_size("feed_forward_length", c_.integer("intermediate_size"));
    model_.add_size("attention.head_count", c_.integer("num_attention_heads"));
    model_.add_size("attention.head_count_kv", kv_heads_of(c_));
    model_.add_size("attention.key_length", head_size);
    model_.add_size("attention.value_length", head_size);
    model_.add_real("attention.layer_norm_rms_epsilon", c_.real("rms_norm_eps"));
  }

  Problem check_parts() {
    const bool silu = !parts_.norms.centred;
    if (gate_of(c_, parts_.mlp) != (silu ? Activation::silu : Activation::gelu))
      return problem(parts_.mlp.activation_key,
                     silu ? "has the gate silu alone" : "has gelu in its tanh form alone");
    if (!known_.biases && parts_.biases == AttentionBiases::by_key && c_.flag("attention_bias"))
      return problem("dstrain.model.attention_bias", "has no biases of attention");
    if (parts_.norms.centred && !c_.flag("tie_word_embeddings"))
      return problem("dstrain.model.tie_word_embeddings",
                     "has the token embedding as its head: only true is available");
    return std::nullopt;
  }

  Problem add_scores() {
    const ScoresPart& scores = parts_.scores;
    if (scores.scalar_key) {
      const bool large = c_.layers() == known_.large_layers;
      const int64_t usual =
          large ? c_.width() / c_.integer("num_attention_heads") : head_size_of(c_);
      if (c_.integer("query_pre_attn_scalar") != usual)
        return problem(kScalar, fmt::format("has {} there in a model of these sizes", usual));
    }
    if (!scores.softcap.empty()) {
      const double cap = c_.real("attn_logit_softcapping"),
                   last = c_.real("final_logit_softcapping");
      if (cap <= 0 || last <= 0)
        return problem(cap <= 0 ? "dstrain.model.attn_logit_softcapping"
                                : "dstrain.model.final_logit_softcapping",
                       "always limits scores and logits");
      model_.add_real("attn_logit_softcapping", cap);
      model_.add_real("final_logit_softcapping", last);
    } else if (!scores.logits_softcap.empty() && c_.real("final_logit_softcapping") > 0) {
      return problem("dstrain.model.final_logit_softcapping", "does not limit logits");
    }
    return std::nullopt;
  }

  // An architecture without windows computes the same as long as a text is no longer than one.
  Problem add_windows() {
    int64_t context = c_.context();
    if (known_.whole_every > 0) {
      for (int64_t i = 0; i < c_.layers(); ++i)
        if (has_window(c_, parts_.windows, i) != ((i + 1) % known_.whole_every != 0))
          return problem(
              "dstrain.model.layer_types",
              fmt::format("has a window in all layers but every {}th", known_.whole_every));
      const int64_t window = c_.integer("sliding_window");
      model_.add_size("attention.sliding_window", window > 0 ? window : context);
    } else {
      int64_t least = context;
      for (int64_t i = 0; i < c_.layers(); ++i)
        if (const int64_t window = window_of(c_, parts_.windows, i); window > 0)
          least = std::min(least, window);
      if (least < context)
        model_.warnings.push_back(fmt::format(
            "{} {}: llama.cpp's architecture {} has no windows, so that the file says a context "
            "of {} tokens, in which it computes the same, in the place of {}",
            kWindow, least, known_.architecture, least, context));
      context = least;
    }
    model_.add_size("context_length", context);
    return std::nullopt;
  }

  Problem add_positions() {
    const int64_t head_size = head_size_of(c_);
    if (known_.local_theta)
      model_.add_real("rope.freq_base_swa", local_rotary_of(c_, head_size).theta);
    return add_gguf_rotary(model_, rotary_of(c_, head_size), known_.rotary_factors);
  }

  void add(std::string_view own, std::string_view written, GgufChange change = GgufChange::none) {
    model_.names.push_back({own, written, change});
  }

  void add_names() {
    const GgufChange heads = known_.interleaved ? GgufChange::heads_interleaved : GgufChange::none,
                     norm = parts_.norms.centred ? GgufChange::plus_one : GgufChange::none;
    add("model.embed_tokens", "token_embd");
    add("model.layers.*.input_layernorm", "blk.*.attn_norm", norm);
    add("model.layers.*.self_attn.q_proj", "blk.*.attn_q", heads);
    add("model.layers.*.self_attn.k_proj", "blk.*.attn_k", heads);
    add("model.layers.*.self_attn.v_proj", "blk.*.attn_v");
    add("model.layers.*.self_attn.o_proj", "blk.*.attn_output");
    if (parts_.scores.head_norms) {
      add("model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm", norm);
      add("model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm", norm);
    }
    if (parts_.norms.of_results) {
      add("model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm", norm);
      add("model.layers.*.pre_feedforward_layernorm", "blk.*.ffn_norm", norm);
      add("model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm", norm);
    } else {
      add("model.layers.*.post_attention_layernorm", "blk.*.ffn_norm", norm);
    }
    add("model.layers.*.mlp.gate_proj", "blk.*.ffn_gate");
    add("model.layers.*.mlp.up_proj", "blk.*.ffn_up");
    add("model.layers.*.mlp.down_proj", "blk.*.ffn_down");
    add("model.norm", "output_norm", norm);
    add("lm_head", "output");
  }

  const ModelConfig& c_;
  const DecoderParts& parts_;
  const GgufDecoder& known_;
  GgufModel model_;
};

}  // namespace

GgufDescription gguf_of_decoder(const ModelConfig& model, const DecoderParts& parts,
                                const GgufDecoder& known) {
  return Description(model, parts, known).take();
}

}  // namespace dstrain::models
