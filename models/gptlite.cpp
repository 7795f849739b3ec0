// GPT-lite: token + position embedding, pre-norm blocks (x += attn(ln1(x)); x += mlp(ln2(x))),
// final norm, language-model head. With gelu, qkv_bias and tied_head it is GPT-2 (Radford et al.,
// 2019).
#include <fmt/core.h>

#include <cmath>

#include "models/model.h"

namespace dstrain {
namespace {

constexpr float kNormEps = 1e-5f;
constexpr float kInitStd = 0.02f;

class GptLite {
 public:
  GptLite(Builder& b, const ModelConfig& c) : b_(b), c_(c) {
    // Residual projections start smaller, so that the variance of the residual stream does not grow with
    // depth.
    seq_len_ = b.options().seq_len > 0 ? b.options().seq_len : c.block_size;
    projection_std_ =
        kInitStd / static_cast<float>(std::sqrt(2.0 * static_cast<double>(c.n_layer)));
  }

  void build() {
    b_.unit("embedding");
    const BufferId ids = b_.ids(seq_len_);
    const BufferId token = vocabulary("token_embedding_table.weight");
    const BufferId position = b_.parameter("position_embedding_table.weight",
                                           {c_.block_size, c_.n_embd}, Init::normal, kInitStd);
    BufferId x = b_.embed(ids, token, position, seq_len_);
    for (int64_t i = 0; i < c_.n_layer; ++i) x = block(x, fmt::format("blocks.{}", i));
    b_.unit("head");
    x = norm(x, "ln");
    const BufferId head = c_.tied_head ? token : vocabulary("lm_head.weight");
    const BufferId logits = b_.linear(x, head, kNone, Activation::none);
    if (b_.options().with_loss)
      b_.cross_entropy(logits, b_.targets(b_.options().batch * seq_len_), c_.vocab_size);
    else
      b_.output(logits);
  }

 private:
  BufferId block(BufferId x, const std::string& name) {
    b_.unit(name, "attn");
    const int64_t c = c_.n_embd, t = seq_len_;
    BufferId y = linear(norm(x, name + ".ln1"), name + ".attn.qkv", c, 3 * c, c_.qkv_bias);
    y = b_.attention(y, c_.n_head, t, c_.dropout);
    y = linear(y, name + ".attn.out_proj", c, c, true, Activation::none, projection_std_);
    x = b_.add_dropout(x, y, t, c_.dropout);
    b_.sublayer("mlp");
    BufferId h = linear(norm(x, name + ".ln2"), name + ".mlp.fc", c, 4 * c, true,
                        c_.gelu ? Activation::gelu : Activation::relu);
    h = linear(h, name + ".mlp.proj", 4 * c, c, true, Activation::none, projection_std_);
    return b_.add_dropout(x, h, t, c_.dropout);
  }

  BufferId linear(BufferId x, const std::string& name, int64_t in, int64_t out, bool bias,
                  Activation activation = Activation::none, float std = kInitStd) {
    const BufferId w = b_.parameter(name + ".weight", {out, in}, Init::normal, std);
    return b_.linear(x, w, bias ? b_.parameter(name + ".bias", {out}, Init::zeros) : kNone,
                     activation);
  }

  BufferId norm(BufferId x, const std::string& name) {
    const BufferId w = b_.parameter(name + ".weight", {c_.n_embd}, Init::ones);
    return b_.layer_norm(x, w, b_.parameter(name + ".bias", {c_.n_embd}, Init::zeros), kNormEps);
  }

  BufferId vocabulary(const std::string& name) {
    return b_.vocabulary(name, {c_.vocab_size, c_.n_embd}, Init::normal, kInitStd);
  }

  Builder& b_;
  const ModelConfig& c_;
  int64_t seq_len_;
  float projection_std_;
};

}  // namespace

void build_gptlite(Builder& builder, const ModelConfig& config) {
  GptLite(builder, config).build();
}

void build_model(Builder& builder, const ModelConfig& config) {
  switch (config.kind) {
    case ModelKind::gptlite:
      return build_gptlite(builder, config);
    case ModelKind::benchmark:
      return build_benchmark(builder, config);
  }
}

}  // namespace dstrain
