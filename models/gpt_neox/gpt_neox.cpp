#include "models/gpt_neox/gpt_neox.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "models/decoder/keys.h"
#include "models/decoder/rotary_keys.h"
#include "models/gguf/gguf_rotary.h"
#include "models/hugging_face/fields.h"
#include "models/measure.h"
#include "models/sizes.h"
#include "models/token_head.h"
#include "models/token_inputs.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {
namespace {

// Before the names of all parameters but the head's.
constexpr std::string_view kPrefix = "gpt_neox.", kHead = "embed_out.weight";
constexpr models::RotaryPart kRotary{.outer_theta = "dstrain.model.rotary_emb_base",
                                     .share = "0.25",
                                     .outer_share = "dstrain.model.rotary_pct"};

int64_t neox_head_size(const ModelConfig& c) {
  return c.width() / c.integer("num_attention_heads");
}

class GptNeox {
 public:
  GptNeox(Builder& b, const ModelConfig& c)
      : b_(b),
        c_(c),
        width_(c.width()),
        seq_len_(b.seq_len(c.context())),
        dropout_(c.real("hidden_dropout")),
        std_(static_cast<float>(c.real("initializer_range"))),
        eps_(static_cast<float>(c.real("layer_norm_eps"))),
        rotary_(models::rotary_of(c, neox_head_size(c))) {
    rotary_.sections = 3;
  }

  void build() {
    b_.unit("embedding");
    const BufferId ids = b_.input("ids", InputRole::token_ids, DType::i32, {seq_len_});
    const BufferId token = vocabulary("gpt_neox.embed_in.weight");
    BufferId x = b_.dropout(b_.embed(ids, token, kNone, seq_len_), seq_len_, dropout_);
    for (int64_t i = 0; i < c_.layers(); ++i) x = block(x, i);
    b_.unit("head");
    x = norm(x, "gpt_neox.final_layer_norm");
    models::add_token_head(b_, c_, x, {.name = std::string(kHead), .std = std_});
  }

 private:
  // A block whose MLP reads what its attention reads is one sublayer, so that a pipeline carries one value from it.
  BufferId block(BufferId x, int64_t number) {
    const bool beside = c_.flag("use_parallel_residual");
    const std::string layer = b_.layer("layers", number, beside ? "" : "attn"),
                      name = fmt::format("{}{}", kPrefix, layer);
    const BufferId with_attention = b_.add_dropout(x, attention(x, name), seq_len_, dropout_);
    if (beside) return b_.add_dropout(with_attention, mlp(x, name), seq_len_, dropout_);
    b_.sublayer("mlp");
    return b_.add_dropout(with_attention, mlp(with_attention, name), seq_len_, dropout_);
  }

  BufferId attention(BufferId x, const std::string& name) {
    const bool bias = c_.flag("attention_bias");
    const BufferId documents = b_.documents(seq_len_);
    BufferId y = linear(norm(x, name + ".input_layernorm"), name + ".attention.query_key_value",
                        width_, 3 * width_, bias);
    y = b_.rotary(y, seq_len_, rotary_, documents);
    y = b_.attention(y, c_.integer("num_attention_heads"), seq_len_, c_.real("attention_dropout"),
                     documents);
    return linear(y, name + ".attention.dense", width_, width_, bias);
  }

  BufferId mlp(BufferId x, const std::string& name) {
    const int64_t hidden = c_.integer("intermediate_size");
    const BufferId y =
        linear(norm(x, name + ".post_attention_layernorm"), name + ".mlp.dense_h_to_4h", width_,
               hidden, true, models::activation_of(c_.text("hidden_act")));
    return linear(y, name + ".mlp.dense_4h_to_h", hidden, width_, true);
  }

  BufferId linear(BufferId x, const std::string& name, int64_t in, int64_t out, bool bias,
                  Activation activation = Activation::none) {
    const BufferId w = b_.parameter(name + ".weight", {out, in}, Init::normal, std_);
    return b_.linear(x, w, bias ? b_.parameter(name + ".bias", {out}, Init::zeros) : kNone,
                     activation);
  }

  BufferId norm(BufferId x, const std::string& name) {
    const BufferId w = b_.parameter(name + ".weight", {width_}, Init::ones);
    return b_.layer_norm(x, w, b_.parameter(name + ".bias", {width_}, Init::zeros), eps_);
  }

  BufferId vocabulary(const std::string& name) {
    return b_.vocabulary(name, {c_.vocabulary(), width_}, Init::normal, std_);
  }

  Builder& b_;
  const ModelConfig& c_;
  int64_t width_, seq_len_;
  double dropout_;
  float std_, eps_;
  RotaryAttrs rotary_;
};

void build_neox(Builder& builder, const ModelConfig& config) {
  GptNeox(builder, config).build();
}

// Files have the queries, keys and values of one head, then those of the next one; a parameter has all queries first.
WeightMap neox_weights(const ModelConfig& c) {
  const int64_t heads = c.integer("num_attention_heads"), size = neox_head_size(c);
  WeightMap map;
  for (int64_t i = 0; i < c.layers(); ++i)
    for (const std::string_view end : {"weight", "bias"}) {
      if (end == "bias" && !c.flag("attention_bias")) continue;
      const std::string name =
          fmt::format("{}layers.{}.attention.query_key_value.{}", kPrefix, i, end);
      WeightEntry entry{name, {}};
      for (int64_t section = 0; section < 3; ++section)
        for (int64_t head = 0; head < heads; ++head)
          entry.parts.push_back(
              {.tensor = name, .rows = size, .first = (3 * head + section) * size});
      map.push_back(std::move(entry));
    }
  return map;
}

// Older files have the masks and the frequencies of attention.
std::vector<std::string> neox_ignored(const ModelConfig&) {
  return {"layers.*.attention.bias", "layers.*.attention.masked_bias",
          "layers.*.attention.rotary_emb.inv_freq"};
}

std::optional<KeyProblem> neox_problem(const ModelConfig& c) {
  const int64_t width = c.width(), heads = c.integer("num_attention_heads");
  if (width % heads != 0)
    return KeyProblem{
        {"dstrain.model.num_attention_heads", "dstrain.model.hidden_size"},
        fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", width, heads)};
  return models::rotary_key_problem(c, neox_head_size(c));
}

bool neox_exceeds_context(const ModelConfig& c) {
  return models::rotary_of(c, neox_head_size(c)).kind == RotaryKind::dynamic;
}

std::vector<ModelKey> neox_keys() {
  using models::size_key;
  using enum FactChange;
  const auto probability = [](std::string_view key, std::string_view note) {
    return ModelKey{{.key = key,
                     .type = Type::real,
                     .fallback = "0.0",
                     .note = note,
                     .min = 0,
                     .max = 1,
                     .open = true},
                    allowed};
  };
  std::vector<ModelKey> keys{
      {size_key("dstrain.model.num_hidden_layers", "44", "blocks", models::kMostLayers)},
      {size_key("dstrain.model.hidden_size", "6144", "channels")},
      {size_key("dstrain.model.intermediate_size", "24576", "channels inside the MLP")},
      {size_key("dstrain.model.num_attention_heads", "64", ""), forbidden},
      {size_key("dstrain.model.max_position_embeddings", "2048", "the most tokens of a sample")},
      {{.key = "dstrain.model.hidden_act",
        .type = Type::choice,
        .fallback = "\"gelu\"",
        .note = "of the MLP",
        .choices = "gelu|gelu_new|gelu_fast|gelu_pytorch_tanh|relu"},
       forbidden},
      {models::real_key("dstrain.model.layer_norm_eps", "1e-05", "", 0), forbidden},
      {models::real_key("dstrain.model.initializer_range", "0.02",
                        "standard deviation of fresh weights", 0),
       irrelevant},
      probability("dstrain.model.attention_dropout", "dropout on attention weights"),
      probability("dstrain.model.hidden_dropout",
                  "dropout on the embedding and on what is added to x"),
      {{.key = "dstrain.model.use_parallel_residual",
        .fallback = "true",
        .note = "the MLP reads what attention reads"},
       forbidden},
      {{.key = "dstrain.model.attention_bias", .fallback = "true"}},
  };
  std::ranges::move(models::rotary_keys(kRotary), std::back_inserter(keys));
  keys.push_back({size_key("dstrain.model.vocab_size", "50432", "")});
  return keys;
}

std::vector<KeySpec> neox_fields() {
  std::vector<KeySpec> own = models::rotary_fields(kRotary);
  own.push_back(models::harmless("dstrain.model.rope_theta",
                                 "transformers leaves it out: rotary_emb_base counts"));
  own.push_back(models::harmless("dstrain.model.attention_probs_dropout_prob",
                                 "an old name of attention_dropout, which transformers ignores"));
  own.push_back(models::harmless("dstrain.model.hidden_dropout_prob",
                                 "an old name of hidden_dropout, which transformers ignores"));
  own.push_back(models::fixed("dstrain.model.tie_word_embeddings", Type::boolean, "false",
                              "a head that is the token embedding"));
  return models::fields_with(own);
}

}  // namespace

const ModelFamily& gpt_neox() {
  static const ModelFamily family{
      .type = "gpt_neox",
      .title = "GPT-NeoX",
      .keys = neox_keys(),
      .inputs = models::token_inputs("max_position_embeddings", "vocab_size"),
      .layers_key = "num_hidden_layers",
      .width_key = "hidden_size",
      .heads_key = "num_attention_heads",
      .usual_tokens = 1024,
      .exceeds_context = neox_exceeds_context,
      .problem = neox_problem,
      .build = build_neox,
      .measure = measure_model,
      .weight_map = neox_weights,
      .hugging_face = HuggingFace{
          .fields = neox_fields(),
          .architecture = "GPTNeoXForCausalLM",
          .prefix = kPrefix,
          .table = "gpt_neox.embed_in.weight",
          .head = kHead,
          .ignored = neox_ignored,
          .normalise = [](Node& section) { models::normalise_rotary(section, kRotary); },
          .restore = [](Node& section) { models::restore_rotary(section, kRotary); }}};
  return family;
}

// llama.cpp computes gelu in its tanh form where the model has the exact one, as it does for all models of this family.
models::GgufDescription gguf_of_gpt_neox(const ModelConfig& c) {
  if (c.text("hidden_act") == "relu")
    return KeyProblem{{"dstrain.model.hidden_act"},
                      "llama.cpp's architecture gptneox has gelu alone"};
  if (!c.flag("attention_bias"))
    return KeyProblem{{"dstrain.model.attention_bias"},
                      "llama.cpp's architecture gptneox has biases of attention: only true is "
                      "available"};
  models::GgufModel model{.architecture = "gptneox"};
  model.add_size("vocab_size", c.vocabulary());
  model.add_size("context_length", c.context());
  model.add_size("embedding_length", c.width());
  model.add_size("block_count", c.layers());
  model.add_size("feed_forward_length", c.integer("intermediate_size"));
  model.add_size("attention.head_count", c.integer("num_attention_heads"));
  model.add("use_parallel_residual", c.flag("use_parallel_residual"));
  model.add_real("attention.layer_norm_epsilon", c.real("layer_norm_eps"));
  model.names = {{"gpt_neox.embed_in", "token_embd"},
                 {"gpt_neox.layers.*.input_layernorm", "blk.*.attn_norm"},
                 {"gpt_neox.layers.*.attention.query_key_value", "blk.*.attn_qkv"},
                 {"gpt_neox.layers.*.attention.dense", "blk.*.attn_output"},
                 {"gpt_neox.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
                 {"gpt_neox.layers.*.mlp.dense_h_to_4h", "blk.*.ffn_up"},
                 {"gpt_neox.layers.*.mlp.dense_4h_to_h", "blk.*.ffn_down"},
                 {"gpt_neox.final_layer_norm", "output_norm"},
                 {"embed_out", "output"}};
  if (auto problem = models::add_gguf_rotary(model, models::rotary_of(c, neox_head_size(c)), false))
    return *problem;
  return model;
}

}  // namespace dstrain
