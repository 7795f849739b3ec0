// GPT-2 and Llama as general ops alone, with the keys, the parameters and the order of the families that are built in.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "models/gpt2/gpt2.h"
#include "models/llama/llama.h"
#include "tests/support/general_layers.h"

namespace dstrain {

class GeneralGpt2 {
 public:
  GeneralGpt2(Builder& b, const ModelConfig& c)
      : b_(b), c_(c), layers_(b, b.seq_len(c.context())), width_(c.integer("n_embd")) {}

  void build() {
    b_.unit("embedding");
    const int64_t tokens = layers_.tokens();
    const BufferId ids = b_.input("ids", InputRole::token_ids, DType::i32, {tokens});
    const BufferId table =
        b_.vocabulary("transformer.wte.weight", {c_.vocabulary(), width_}, Init::normal, std_);
    const BufferId places = b_.parameter("transformer.wpe.weight",
                                         {c_.integer("n_positions"), width_}, Init::normal, std_);
    BufferId x = b_.take(table, layers_.by_id(width_, c_.vocabulary()), {ids});
    x = b_.map(Formula::input(0) + Formula::input(1), layers_.rows(width_),
               {layers_.whole(x), GeneralLayers::seen(places, {0, width_, 1})});
    for (int64_t i = 0; i < c_.layers(); ++i) x = block(x, i);
    b_.unit("head");
    const BufferId logits = layers_.product(norm(x, "transformer.ln_f"), table);
    layers_.cross_entropy(logits, b_.input("targets", InputRole::labels, DType::i32, {tokens}),
                          c_.vocabulary());
  }

 private:
  BufferId block(BufferId x, int64_t number) {
    const std::string name = "transformer." + b_.layer("h", number, "attn");
    const int64_t heads = c_.integer("n_head"), size = width_ / heads;
    const BufferId qkv =
        linear(norm(x, name + ".ln_1"), name + ".attn.c_attn", width_, 3 * width_, std_);
    const auto part = [&](int64_t i) { return layers_.heads(qkv, 3 * width_, size, i * width_); };
    BufferId y = layers_.causal_attention(part(0), part(1), part(2), heads, size);
    y = linear(y, name + ".attn.c_proj", width_, width_, projection_std());
    x = layers_.sum(x, y, width_);
    b_.sublayer("mlp");
    y = linear(norm(x, name + ".ln_2"), name + ".mlp.c_fc", width_, 4 * width_, std_);
    const Shape space = layers_.rows(4 * width_);
    y = b_.map(gelu(Formula::input(0)), space, {{y, dense_view(space)}});
    y = linear(y, name + ".mlp.c_proj", 4 * width_, width_, projection_std());
    return layers_.sum(x, y, width_);
  }

  BufferId norm(BufferId x, const std::string& name) {
    const BufferId w = b_.parameter(name + ".weight", {width_}, Init::ones),
                   bias = b_.parameter(name + ".bias", {width_}, Init::zeros);
    return layers_.layer_norm(x, w, bias, static_cast<float>(c_.real("layer_norm_epsilon")));
  }

  BufferId linear(BufferId x, const std::string& name, int64_t in, int64_t out, float std) {
    const BufferId w = b_.parameter(name + ".weight", {out, in}, Init::normal, std),
                   bias = b_.parameter(name + ".bias", {out}, Init::zeros);
    return layers_.with_bias(layers_.product(x, w), bias);
  }

  float projection_std() const {
    return std_ / static_cast<float>(std::sqrt(2.0 * static_cast<double>(c_.layers())));
  }

  Builder& b_;
  const ModelConfig& c_;
  GeneralLayers layers_;
  int64_t width_;
  float std_ = static_cast<float>(c_.real("initializer_range"));
};

class GeneralLlama {
 public:
  GeneralLlama(Builder& b, const ModelConfig& c)
      : b_(b),
        c_(c),
        layers_(b, b.seq_len(c.context())),
        width_(c.width()),
        heads_(c.integer("num_attention_heads")),
        kv_heads_(c.integer("num_key_value_heads")),
        size_(width_ / heads_) {}

  void build() {
    b_.unit("embedding");
    const int64_t tokens = layers_.tokens();
    const BufferId ids = b_.input("ids", InputRole::token_ids, DType::i32, {tokens});
    const BufferId table = vocabulary("model.embed_tokens.weight");
    BufferId x = b_.take(table, layers_.by_id(width_, c_.vocabulary()), {ids});
    for (int64_t i = 0; i < c_.layers(); ++i) x = block(x, i);
    b_.unit("head");
    x = norm(x, "model.norm");
    const BufferId logits = layers_.product(x, vocabulary("lm_head.weight"));
    layers_.cross_entropy(logits, b_.input("targets", InputRole::labels, DType::i32, {tokens}),
                          c_.vocabulary());
  }

 private:
  using Seen = Builder::Seen;
  static inline const Formula kX = Formula::input(0);

  BufferId block(BufferId x, int64_t number) {
    const std::string name = b_.layer("model.layers", number, "attn");
    x = layers_.sum(x, attention(norm(x, name + ".input_layernorm"), name + ".self_attn."), width_);
    b_.sublayer("mlp");
    const int64_t hidden = c_.integer("intermediate_size");
    const BufferId y = norm(x, name + ".post_attention_layernorm");
    const BufferId gate = linear(y, name + ".mlp.gate_proj", width_, hidden),
                   up = linear(y, name + ".mlp.up_proj", width_, hidden);
    const BufferId gated = b_.map(silu(kX) * Formula::input(1), layers_.rows(hidden),
                                  {layers_.whole(gate), layers_.whole(up)});
    return layers_.sum(x, linear(gated, name + ".mlp.down_proj", hidden, width_), width_);
  }

  BufferId attention(BufferId x, const std::string& name) {
    const int64_t q_width = heads_ * size_, kv_width = kv_heads_ * size_;
    const BufferId q = linear(x, name + "q_proj", width_, q_width),
                   k = linear(x, name + "k_proj", width_, kv_width),
                   v = linear(x, name + "v_proj", width_, kv_width);
    const BufferId turned_q = turned(q, heads_), turned_k = turned(k, kv_heads_);
    const int64_t t = layers_.tokens();
    const BufferId all_k = repeated(turned_k, {kv_width * t, t * size_, 0, size_, 1}),
                   all_v = repeated(v, {t * kv_width, size_, 0, kv_width, 1});
    const Shape space{layers_.samples(), heads_, t, size_};
    const BufferId y =
        layers_.causal_attention({turned_q, dense_view(space)}, {all_k, dense_view(space)},
                                 {all_v, dense_view(space)}, heads_, size_);
    return linear(y, name + "o_proj", q_width, width_);
  }

  // Returns heads (samples, heads, tokens, size) of rows, turned by the angles of their positions.
  BufferId turned(BufferId rows, int64_t heads) {
    const int64_t t = layers_.tokens(), half = size_ / 2;
    std::vector<float> cosines, sines;
    for (int64_t position = 0; position < t; ++position)
      for (int64_t column = 0; column < size_; ++column) {
        const double pair = 2 * static_cast<double>(column % half) / static_cast<double>(size_);
        const double angle = static_cast<double>(position) * std::pow(kTheta, -pair);
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
      }
    const BufferId cos = b_.constant("cos", {t, size_}, DType::f32, cosines.data()),
                   sin = b_.constant("sin", {t, size_}, DType::f32, sines.data());
    const Seen x = layers_.heads(rows, heads * size_, size_);
    Seen second = x, first = x;
    second.view.offset = half;
    second.view.end[3] = half;
    first.view.offset = -half;
    first.view.begin[3] = half;
    const Formula c = Formula::input(1), hi = Formula::input(2), lo = Formula::input(3),
                  s = Formula::input(4);
    const View::Numbers of_table{0, 0, size_, 1};
    return b_.map(
        kX * c + (-hi + lo) * s, {layers_.samples(), heads, t, size_},
        {x, GeneralLayers::seen(cos, of_table), second, first, GeneralLayers::seen(sin, of_table)});
  }

  // Returns keys or values, of which each head serves as many heads of queries.
  BufferId repeated(BufferId heads, const View::Numbers& strides) {
    return b_.map(kX, {layers_.samples(), kv_heads_, heads_ / kv_heads_, layers_.tokens(), size_},
                  {GeneralLayers::seen(heads, strides)});
  }

  BufferId norm(BufferId x, const std::string& name) {
    return layers_.rms_norm(x, b_.parameter(name + ".weight", {width_}, Init::ones),
                            static_cast<float>(c_.real("rms_norm_eps")));
  }
  BufferId linear(BufferId x, const std::string& name, int64_t in, int64_t out) {
    return layers_.product(x, b_.parameter(name + ".weight", {out, in}, Init::normal, std_));
  }
  BufferId vocabulary(const std::string& name) {
    return b_.vocabulary(name, {c_.vocabulary(), width_}, Init::normal, std_);
  }

  static constexpr double kTheta = 10000;
  Builder& b_;
  const ModelConfig& c_;
  GeneralLayers layers_;
  int64_t width_, heads_, kv_heads_, size_;
  float std_ = static_cast<float>(c_.real("initializer_range"));
};

// Returns a family that writes its model otherwise.
template <class Model>
ModelFamily written_by(ModelFamily family) {
  family.build = [](Builder& b, const ModelConfig& c) { Model(b, c).build(); };
  return family;
}
inline const ModelFamily& general_gpt2() {
  static const ModelFamily family = written_by<GeneralGpt2>(gpt2());
  return family;
}
inline const ModelFamily& general_llama() {
  static const ModelFamily family = written_by<GeneralLlama>(llama());
  return family;
}

}  // namespace dstrain
