#include "models/gpt2/gpt2.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

#include "models/hugging_face/fields.h"
#include "models/measure.h"
#include "models/sizes.h"
#include "models/token_head.h"
#include "models/token_inputs.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {
namespace {

// Before the names of all parameters but the head's.
constexpr std::string_view kTransformer = "transformer.";

class Gpt2 {
 public:
  Gpt2(Builder& b, const ModelConfig& c)
      : b_(b),
        c_(c),
        width_(c.integer("n_embd")),
        hidden_(c.integer("n_inner") > 0 ? c.integer("n_inner") : 4 * width_),
        seq_len_(b.seq_len(c.context())),
        activation_(c.text("activation_function") == "relu" ? Activation::relu : Activation::gelu),
        std_(static_cast<float>(c.real("initializer_range"))),
        projection_std_(std_ /
                        static_cast<float>(std::sqrt(2.0 * static_cast<double>(c.layers())))) {}

  void build() {
    b_.unit("embedding");
    const BufferId ids = b_.input("ids", InputRole::token_ids, DType::i32, {seq_len_});
    const BufferId token = vocabulary("transformer.wte.weight");
    const BufferId position = b_.parameter("transformer.wpe.weight",
                                           {c_.integer("n_positions"), width_}, Init::normal, std_);
    BufferId x = b_.dropout(b_.embed(ids, token, position, seq_len_, b_.documents(seq_len_)),
                            seq_len_, c_.real("embd_pdrop"));
    for (int64_t i = 0; i < c_.layers(); ++i) x = block(x, i);
    b_.unit("head");
    x = norm(x, "transformer.ln_f");
    models::add_token_head(b_, c_, x,
                           {.table = c_.flag("tie_word_embeddings") ? token : kNone, .std = std_});
  }

 private:
  BufferId block(BufferId x, int64_t number) {
    const std::string name = fmt::format("{}{}", kTransformer, b_.layer("h", number, "attn"));
    const int64_t c = width_, t = seq_len_;
    BufferId y = linear(norm(x, name + ".ln_1"), name + ".attn.c_attn", c, 3 * c, std_);
    y = b_.attention(y, c_.integer("n_head"), t, c_.real("attn_pdrop"), b_.documents(t));
    y = linear(y, name + ".attn.c_proj", c, c, projection_std_);
    x = b_.add_dropout(x, y, t, c_.real("resid_pdrop"));
    b_.sublayer("mlp");
    BufferId h = linear(norm(x, name + ".ln_2"), name + ".mlp.c_fc", c, hidden_, std_, activation_);
    h = linear(h, name + ".mlp.c_proj", hidden_, c, projection_std_);
    return b_.add_dropout(x, h, t, c_.real("resid_pdrop"));
  }

  BufferId linear(BufferId x, const std::string& name, int64_t in, int64_t out, float std,
                  Activation activation = Activation::none) {
    const BufferId w = b_.parameter(name + ".weight", {out, in}, Init::normal, std);
    return b_.linear(x, w, b_.parameter(name + ".bias", {out}, Init::zeros), activation);
  }

  BufferId norm(BufferId x, const std::string& name) {
    const BufferId w = b_.parameter(name + ".weight", {width_}, Init::ones);
    return b_.layer_norm(x, w, b_.parameter(name + ".bias", {width_}, Init::zeros),
                         static_cast<float>(c_.real("layer_norm_epsilon")));
  }

  BufferId vocabulary(const std::string& name) {
    return b_.vocabulary(name, {c_.vocabulary(), width_}, Init::normal, std_);
  }

  Builder& b_;
  const ModelConfig& c_;
  int64_t width_, hidden_, seq_len_;
  Activation activation_;
  float std_;
  // Residual projections start smaller, so that the variance of the residual stream does not grow with depth.
  float projection_std_;
};

void build_gpt2(Builder& builder, const ModelConfig& config) {
  Gpt2(builder, config).build();
}

// Files have the weights of products as transformers' Conv1D has them: (in, out).
WeightMap gpt2_weights(const ModelConfig& c) {
  constexpr std::array kProducts{"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"};
  WeightMap map;
  for (int64_t i = 0; i < c.layers(); ++i)
    for (const char* const product : kProducts) {
      const std::string name = fmt::format("{}h.{}.{}.weight", kTransformer, i, product);
      map.push_back({name, {{.tensor = name, .transposed = true}}});
    }
  return map;
}

// The oldest files have the masks of attention; some have the head although it is the embedding.
std::vector<std::string> gpt2_ignored(const ModelConfig& c) {
  std::vector<std::string> patterns{"h.*.attn.bias", "h.*.attn.masked_bias"};
  if (c.flag("tie_word_embeddings")) patterns.emplace_back(kHeadTensor);
  return patterns;
}

std::optional<KeyProblem> gpt2_problem(const ModelConfig& c) {
  const int64_t width = c.integer("n_embd"), heads = c.integer("n_head");
  if (width % heads == 0) return std::nullopt;
  return KeyProblem{{"dstrain.model.n_head", "dstrain.model.n_embd"},
                    fmt::format("n_embd {} is not a multiple of n_head {}", width, heads)};
}

std::vector<ModelKey> gpt2_keys() {
  using models::size_key;
  using enum FactChange;
  const auto probability = [](std::string_view key, std::string_view note) {
    return ModelKey{{.key = key,
                     .type = Type::real,
                     .fallback = "0.1",
                     .note = note,
                     .min = 0,
                     .max = 1,
                     .open = true},
                    allowed};
  };
  return {
      {size_key("dstrain.model.n_layer", "12", "blocks", models::kMostLayers)},
      {size_key("dstrain.model.n_embd", "768", "channels; a multiple of n_head")},
      {size_key("dstrain.model.n_head", "12", ""), forbidden},
      {size_key("dstrain.model.n_positions", "1024", "the most tokens of a sample")},
      {size_key("dstrain.model.n_inner", "", "channels inside the MLP; unset: 4 n_embd")},
      {{.key = "dstrain.model.activation_function",
        .type = Type::choice,
        .fallback = "\"gelu_new\"",
        .note = "all but relu are the tanh form of gelu",
        .choices = "gelu_new|gelu_pytorch_tanh|gelu_fast|relu"},
       forbidden},
      probability("dstrain.model.resid_pdrop", "dropout on what is added to x"),
      probability("dstrain.model.embd_pdrop", "dropout on the embedding"),
      probability("dstrain.model.attn_pdrop", "dropout on attention weights"),
      {{.key = "dstrain.model.layer_norm_epsilon",
        .type = Type::real,
        .fallback = "1e-05",
        .min = 0,
        .max = 1,
        .open = true},
       forbidden},
      {{.key = "dstrain.model.initializer_range",
        .type = Type::real,
        .fallback = "0.02",
        .note = "standard deviation of fresh weights; residual projections: / sqrt(2 n_layer)",
        .min = 0,
        .max = 1e3},
       irrelevant},
      {{.key = "dstrain.model.tie_word_embeddings",
        .fallback = "true",
        .note = "the head is the token embedding"}},
      {size_key("dstrain.model.vocab_size", "50257", "")},
  };
}

std::vector<KeySpec> gpt2_fields() {
  using models::fixed;
  using models::harmless;
  const std::string_view summary = "of another head than the language model's";
  return models::fields_with({
      harmless("dstrain.model.n_ctx", "an old name of n_positions, which transformers ignores"),
      harmless("dstrain.model.n_special", "of an older model, which transformers ignores"),
      harmless("dstrain.model.predict_special_tokens",
               "of an older model, which transformers ignores"),
      harmless("dstrain.model.reorder_and_upcast_attn", "attention adds in f32"),
      fixed("dstrain.model.scale_attn_weights", Type::boolean, "true",
            "scores that are not divided by the root of the head's size"),
      fixed("dstrain.model.scale_attn_by_inverse_layer_idx", Type::boolean, "false",
            "scores that are divided by the number of the layer"),
      harmless("dstrain.model.summary_type", summary),
      harmless("dstrain.model.summary_use_proj", summary),
      harmless("dstrain.model.summary_activation", summary),
      harmless("dstrain.model.summary_proj_to_labels", summary),
      harmless("dstrain.model.summary_first_dropout", summary),
  });
}

}  // namespace

const ModelFamily& gpt2() {
  static const ModelFamily family{.type = "gpt2",
                                  .title = "GPT-2",
                                  .keys = gpt2_keys(),
                                  .inputs = models::token_inputs("n_positions", "vocab_size"),
                                  .layers_key = "n_layer",
                                  .width_key = "n_embd",
                                  .heads_key = "n_head",
                                  .usual_tokens = 1024,
                                  .problem = gpt2_problem,
                                  .build = build_gpt2,
                                  .measure = measure_model,
                                  .weight_map = gpt2_weights,
                                  .hugging_face = HuggingFace{.fields = gpt2_fields(),
                                                              .architecture = "GPT2LMHeadModel",
                                                              .prefix = kTransformer,
                                                              .table = "transformer.wte.weight",
                                                              .ignored = gpt2_ignored}};
  return family;
}

models::GgufDescription gguf_of_gpt2(const ModelConfig& c) {
  if (c.text("activation_function") == "relu")
    return KeyProblem{{"dstrain.model.activation_function"},
                      "llama.cpp's architecture gpt2 has gelu in its tanh form alone"};
  models::GgufModel model{.architecture = "gpt2"};
  const int64_t width = c.integer("n_embd"), inner = c.integer("n_inner");
  model.add_size("vocab_size", c.vocabulary());
  model.add_size("context_length", c.integer("n_positions"));
  model.add_size("embedding_length", width);
  model.add_size("block_count", c.layers());
  model.add_size("feed_forward_length", inner > 0 ? inner : 4 * width);
  model.add_size("attention.head_count", c.integer("n_head"));
  model.add_real("attention.layer_norm_epsilon", c.real("layer_norm_epsilon"));
  model.names = {{"transformer.wte", "token_embd"},
                 {"transformer.wpe", "position_embd"},
                 {"transformer.h.*.ln_1", "blk.*.attn_norm"},
                 {"transformer.h.*.attn.c_attn", "blk.*.attn_qkv"},
                 {"transformer.h.*.attn.c_proj", "blk.*.attn_output"},
                 {"transformer.h.*.ln_2", "blk.*.ffn_norm"},
                 {"transformer.h.*.mlp.c_fc", "blk.*.ffn_up"},
                 {"transformer.h.*.mlp.c_proj", "blk.*.ffn_down"},
                 {"transformer.ln_f", "output_norm"},
                 {"lm_head", "output"}};
  return model;
}

}  // namespace dstrain
