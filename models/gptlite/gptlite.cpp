#include "models/gptlite/gptlite.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "models/gpt2/gpt2.h"
#include "models/measure.h"
#include "models/sizes.h"
#include "models/token_head.h"
#include "models/token_inputs.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {
namespace {

constexpr float kNormEps = 1e-5f;
constexpr float kInitStd = 0.02f;

class GptLite {
 public:
  GptLite(Builder& b, const ModelConfig& c)
      : b_(b),
        c_(c),
        context_(c.integer("block_size")),
        width_(c.integer("n_embd")),
        heads_(c.integer("n_head")),
        layers_(c.integer("n_layer")),
        vocabulary_(c.integer("vocab_size")),
        dropout_(c.real("dropout")),
        activation_(c.text("activation") == "gelu" ? Activation::gelu : Activation::relu),
        qkv_bias_(c.flag("qkv_bias")),
        tied_head_(c.flag("tied_head")) {
    seq_len_ = b.seq_len(context_);
    // Residual projections start smaller, so that the variance of the residual stream does not grow with
    // depth.
    projection_std_ = kInitStd / static_cast<float>(std::sqrt(2.0 * static_cast<double>(layers_)));
  }

  void build() {
    b_.unit("embedding");
    const BufferId ids = b_.input("ids", InputRole::token_ids, DType::i32, {seq_len_});
    const BufferId token = b_.vocabulary("token_embedding_table.weight", {vocabulary_, width_},
                                         Init::normal, kInitStd);
    const BufferId position =
        b_.parameter("position_embedding_table.weight", {context_, width_}, Init::normal, kInitStd);
    BufferId x = b_.embed(ids, token, position, seq_len_, b_.documents(seq_len_));
    for (int64_t i = 0; i < layers_; ++i) x = block(x, i);
    b_.unit("head");
    x = norm(x, "ln");
    models::add_token_head(b_, c_, x, {.table = tied_head_ ? token : kNone, .std = kInitStd});
  }

 private:
  BufferId block(BufferId x, int64_t number) {
    const std::string name = b_.layer("blocks", number, "attn");
    const int64_t c = width_, t = seq_len_;
    BufferId y = linear(norm(x, name + ".ln1"), name + ".attn.qkv", c, 3 * c, qkv_bias_);
    y = b_.attention(y, heads_, t, dropout_, b_.documents(t));
    y = linear(y, name + ".attn.out_proj", c, c, true, Activation::none, projection_std_);
    x = b_.add_dropout(x, y, t, dropout_);
    b_.sublayer("mlp");
    BufferId h = linear(norm(x, name + ".ln2"), name + ".mlp.fc", c, 4 * c, true, activation_);
    h = linear(h, name + ".mlp.proj", 4 * c, c, true, Activation::none, projection_std_);
    return b_.add_dropout(x, h, t, dropout_);
  }

  BufferId linear(BufferId x, const std::string& name, int64_t in, int64_t out, bool bias,
                  Activation activation = Activation::none, float std = kInitStd) {
    const BufferId w = b_.parameter(name + ".weight", {out, in}, Init::normal, std);
    return b_.linear(x, w, bias ? b_.parameter(name + ".bias", {out}, Init::zeros) : kNone,
                     activation);
  }

  BufferId norm(BufferId x, const std::string& name) {
    const BufferId w = b_.parameter(name + ".weight", {width_}, Init::ones);
    return b_.layer_norm(x, w, b_.parameter(name + ".bias", {width_}, Init::zeros), kNormEps);
  }

  Builder& b_;
  const ModelConfig& c_;
  int64_t context_, width_, heads_, layers_, vocabulary_;
  double dropout_;
  Activation activation_;
  bool qkv_bias_, tied_head_;
  int64_t seq_len_;
  float projection_std_;
};

void build_gptlite(Builder& builder, const ModelConfig& config) {
  GptLite(builder, config).build();
}

std::optional<KeyProblem> gptlite_problem(const ModelConfig& c) {
  const int64_t width = c.integer("n_embd"), heads = c.integer("n_head");
  if (width % heads == 0) return std::nullopt;
  return KeyProblem{{"dstrain.model.n_head", "dstrain.model.n_embd"},
                    fmt::format("n_embd {} is not a multiple of n_head {}", width, heads)};
}

// Returns what files of GPT-2 call the parameters. They have the weights of products as (in, out).
WeightMap names_in_gpt2(const ModelConfig& c) {
  WeightMap map;
  const auto add = [&map](const std::string& own, const std::string& theirs, bool transposed) {
    map.push_back({own, {{.tensor = "transformer." + theirs, .transposed = transposed}}});
  };
  const auto add_both = [&add](const std::string& own, const std::string& theirs, bool product) {
    add(own + ".weight", theirs + ".weight", product);
    add(own + ".bias", theirs + ".bias", false);
  };
  add("token_embedding_table.weight", "wte.weight", false);
  add("position_embedding_table.weight", "wpe.weight", false);
  add_both("ln", "ln_f", false);
  for (int64_t i = 0; i < c.layers(); ++i) {
    const std::string own = fmt::format("blocks.{}.", i), theirs = fmt::format("h.{}.", i);
    add_both(own + "ln1", theirs + "ln_1", false);
    add_both(own + "ln2", theirs + "ln_2", false);
    add_both(own + "attn.qkv", theirs + "attn.c_attn", true);
    add_both(own + "attn.out_proj", theirs + "attn.c_proj", true);
    add_both(own + "mlp.fc", theirs + "mlp.c_fc", true);
    add_both(own + "mlp.proj", theirs + "mlp.c_proj", true);
  }
  return map;
}

// GPT-2's own defaults are right for what is not set here: kNormEps, kInitStd, and the MLP's 4 n_embd channels.
std::variant<TransformersModel, KeyProblem> as_gpt2(const ModelConfig& c) {
  if (!c.flag("qkv_bias"))
    return KeyProblem{{"dstrain.model.qkv_bias"},
                      "it is false, and GPT-2 always has biases of queries, keys and values: train "
                      "with qkv_bias true"};
  ModelConfig model(gpt2());
  for (const char* const key : {"n_layer", "n_embd", "n_head", "vocab_size"})
    model.set(key, c.integer(key));
  model.set("n_positions", c.integer("block_size"));
  // "gelu_new" is the tanh form, as this family's gelu.
  model.set("activation_function",
            std::string(c.text("activation") == "gelu" ? "gelu_new" : "relu"));
  model.set("resid_pdrop", c.real("dropout"));
  model.set("attn_pdrop", c.real("dropout"));
  model.set("embd_pdrop", 0.0);
  model.set("tie_word_embeddings", c.flag("tied_head"));
  return TransformersModel{std::move(model), names_in_gpt2(c), {"bos_token_id", "eos_token_id"}};
}

std::vector<ModelKey> gptlite_keys() {
  using models::size_key;
  using enum FactChange;
  const auto called = [](KeySpec spec, std::string_view names) {
    spec.called = names;
    return spec;
  };
  return {
      {called(size_key("dstrain.model.n_layer", "12", "blocks", models::kMostLayers),
              "num_layers|n_layers")},
      {called(size_key("dstrain.model.n_embd", "768", "channels; a multiple of n_head"),
              "hidden_size|d_model")},
      {called(size_key("dstrain.model.n_head", "12", ""), "num_attention_heads|num_heads"),
       forbidden},
      {called(size_key("dstrain.model.block_size", "2048", "the most tokens of a sample"),
              "seq_length|max_seq_length|max_seq_len|sequence_length|max_position_embeddings")},
      {{.key = "dstrain.model.dropout",
        .type = Type::real,
        .fallback = "0.1",
        .min = 0,
        .max = 1,
        .open = true},
       allowed},
      {{.key = "dstrain.model.activation",
        .type = Type::choice,
        .fallback = "\"relu\"",
        .choices = "relu|gelu"},
       forbidden},
      {{.key = "dstrain.model.qkv_bias", .fallback = "false"}},
      {{.key = "dstrain.model.tied_head",
        .fallback = "false",
        .note = "the head is the token embedding"}},
      {size_key("dstrain.model.vocab_size", "", "unset: the data's; required for format bin")},
  };
}

}  // namespace

const ModelFamily& gptlite() {
  static const ModelFamily family{.type = "gptlite",
                                  .title = "GPT-lite",
                                  .keys = gptlite_keys(),
                                  .inputs = models::token_inputs("block_size", "vocab_size"),
                                  .layers_key = "n_layer",
                                  .width_key = "n_embd",
                                  .heads_key = "n_head",
                                  .problem = gptlite_problem,
                                  .build = build_gptlite,
                                  .measure = measure_model,
                                  .as_transformers = as_gpt2};
  return family;
}

}  // namespace dstrain
