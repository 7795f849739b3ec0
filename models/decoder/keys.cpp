#include "models/decoder/keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "models/decoder/latent.h"
#include "models/decoder/mixture.h"
#include "models/decoder/rotary_keys.h"
#include "models/decoder/window_keys.h"
#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/read/merge.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kUsualActivation = "dstrain.model.hidden_act";
constexpr std::string_view kScoresCap = "dstrain.model.attn_logit_softcapping",
                           kLogitsCap = "dstrain.model.final_logit_softcapping",
                           kClip = "dstrain.model.clip_qkv";
ModelKey activation_key(const MlpPart& part) {
  return {{.key = part.activation_key,
           .type = Type::choice,
           .fallback = part.activation,
           .note = "of the gate",
           .choices = "silu|swish|gelu|gelu_new|gelu_pytorch_tanh"},
          FactChange::forbidden};
}

void add_scores_keys(const ScoresPart& part, std::vector<ModelKey>& keys) {
  using enum FactChange;
  if (part.scalar_key)
    keys.push_back(
        {size_key("dstrain.model.query_pre_attn_scalar", "256", "scores are divided by its root"),
         forbidden});
  const auto add_cap = [&keys](std::string_view key, std::string_view fallback,
                               std::string_view note) {
    if (!fallback.empty()) keys.push_back({real_key(key, fallback, note, 0), forbidden});
  };
  add_cap(kScoresCap, part.softcap, "the limit of scores, as cap tanh(score / cap); null: none");
  add_cap(kLogitsCap, part.logits_softcap,
          "the limit of logits, as cap tanh(logit / cap); null: none");
  add_cap(kClip, part.clip, "the limit of queries, keys and values, either way; null: none");
}

Member* member_of(Node& section, std::string_view name) {
  for (Member& m : section.members)
    if (m.key == name) return &m;
  return nullptr;
}

// As many heads of keys and values as of queries are null in some files, where the family has another default.
void normalise_heads(Node& section, std::string_view usual_heads) {
  Member* const kv_heads = member_of(section, "num_key_value_heads");
  if (!kv_heads || !kv_heads->value.is(Node::Kind::null)) return;
  if (const Member* const heads = member_of(section, "num_attention_heads"))
    kv_heads->value = heads->value;
  else
    kv_heads->value = read_value(std::string(usual_heads), Source::model_file);
}

// No cap is null in files, and 0 as a key.
void normalise_caps(Node& section) {
  for (const std::string_view key : {kScoresCap, kLogitsCap, kClip})
    if (Member* const cap = member_of(section, key.substr(kModelSection.size()));
        cap && cap->value.is(Node::Kind::null))
      cap->value.kind = Node::Kind::real;
}
void restore_caps(Node& section) {
  for (const std::string_view key : {kScoresCap, kLogitsCap, kClip})
    if (Member* const cap = member_of(section, key.substr(kModelSection.size()));
        cap && to_real(cap->value, false) == 0.0)
      cap->value.kind = Node::Kind::null;
}

void restore(Node& section, const DecoderParts& parts) {
  // transformers derives the size where the key is absent, and fails at a null in families whose settings lack it.
  std::erase_if(section.members, [&parts](const Member& m) {
    return !parts.null_head_dim && m.key == "head_dim" && m.value.is(Node::Kind::null);
  });
  if (parts.latent.exists()) restore_latent(section);
  restore_mixture(section, parts.mixture);
  restore_rotary(section, parts.rotary);
  restore_windows(section);
  restore_caps(section);
}

}  // namespace

std::vector<ModelKey> decoder_keys(const DecoderDefaults& d, const DecoderParts& parts) {
  using enum FactChange;
  const auto optional_size = [](std::string_view key, std::string_view fallback,
                                std::string_view note) {
    KeySpec spec = size_key(key, fallback, note);
    spec.nullable = true;
    return spec;
  };
  std::vector<ModelKey> keys{
      {size_key("dstrain.model.num_hidden_layers", d.num_hidden_layers, "blocks", kMostLayers)},
      {size_key("dstrain.model.hidden_size", d.hidden_size, "channels")},
      {size_key("dstrain.model.intermediate_size", d.intermediate_size, "channels inside the MLP")},
      {size_key("dstrain.model.num_attention_heads", d.num_attention_heads, ""), forbidden},
      {optional_size("dstrain.model.num_key_value_heads", d.num_key_value_heads,
                     "unset: num_attention_heads"),
       forbidden},
      {size_key("dstrain.model.max_position_embeddings", d.max_position_embeddings,
                "the most tokens of a sample")},
      activation_key(parts.mlp),
      {real_key("dstrain.model.rms_norm_eps", d.rms_norm_eps, "", 0), forbidden},
      {real_key("dstrain.model.initializer_range", "0.02", "standard deviation of fresh weights",
                0),
       irrelevant},
      {{.key = "dstrain.model.attention_dropout",
        .type = Type::real,
        .fallback = "0.0",
        .min = 0,
        .max = 1,
        .open = true,
        .nullable = true},
       allowed},
  };
  if (!parts.latent.exists())
    keys.push_back({optional_size("dstrain.model.head_dim", d.head_dim,
                                  "unset: hidden_size / num_attention_heads"),
                    forbidden});
  std::ranges::move(latent_keys(parts.latent), std::back_inserter(keys));
  if (parts.biases == AttentionBiases::by_key)
    keys.push_back({{.key = "dstrain.model.attention_bias", .fallback = "false"}});
  if (parts.mlp.bias_key) keys.push_back({{.key = "dstrain.model.mlp_bias", .fallback = "false"}});
  add_scores_keys(parts.scores, keys);
  std::ranges::move(window_keys(d, parts.windows), std::back_inserter(keys));
  std::ranges::move(mixture_keys(parts.mixture), std::back_inserter(keys));
  std::ranges::move(rotary_keys(parts.rotary), std::back_inserter(keys));
  keys.push_back({{.key = "dstrain.model.tie_word_embeddings",
                   .fallback = d.tie_word_embeddings,
                   .note = "the head is the token embedding"}});
  keys.push_back({size_key("dstrain.model.vocab_size", d.vocab_size, "")});
  return keys;
}

std::vector<std::string> decoder_ignored(const ModelConfig& c) {
  std::vector<std::string> patterns{"layers.*.self_attn.rotary_emb.inv_freq"};
  if (c.flag("tie_word_embeddings")) patterns.emplace_back(kHeadTensor);
  return patterns;
}

HuggingFace decoder_directories(std::string_view architecture, const DecoderDefaults& defaults,
                                const DecoderParts& parts) {
  std::vector<KeySpec> own = rotary_fields(parts.rotary);
  std::ranges::move(latent_fields(parts.latent), std::back_inserter(own));
  std::ranges::move(mixture_fields(parts.mixture), std::back_inserter(own));
  own.push_back(harmless("dstrain.model.pretraining_tp", "products are not divided"));
  own.push_back(harmless("dstrain.model.is_llama_config", "what wrote the file"));
  own.push_back(harmless("dstrain.model.max_sequence_length",
                         "an old name of max_position_embeddings, which transformers ignores"));
  if (parts.biases != AttentionBiases::by_key)
    own.push_back(fixed("dstrain.model.attention_bias", Type::boolean, "false",
                        "biases of attention's products"));
  if (parts.scaled_embedding)
    own.push_back(fixed("dstrain.model.use_bidirectional_attention", Type::boolean, "false",
                        "queries that see keys behind them"));
  if (parts.mlp.activation_key != kUsualActivation)
    own.push_back(harmless(kUsualActivation, "transformers takes hidden_activation"));
  if (parts.mlp.gelu_is_tanh)
    own.push_back(harmless("dstrain.model.hidden_activation",
                           "of an older model: transformers takes hidden_act"));
  if (parts.scores.softcap.empty() && !parts.scores.logits_softcap.empty())
    own.push_back(fixed(kScoresCap, Type::real, "null", "a limit of scores"));
  if (!parts.mlp.bias_key)
    own.push_back(
        fixed("dstrain.model.mlp_bias", Type::boolean, "false", "biases of the MLP's products"));
  std::ranges::move(window_fields(parts.windows), std::back_inserter(own));
  return {.fields = fields_with(own),
          .architecture = architecture,
          .prefix = "model.",
          .table = "model.embed_tokens.weight",
          .ignored = decoder_ignored,
          .normalise =
              [parts, heads = defaults.num_attention_heads](Node& section) {
                if (parts.latent.exists()) normalise_latent(section);
                normalise_mixture(section, parts.mixture);
                normalise_rotary(section, parts.rotary);
                normalise_heads(section, heads);
                normalise_windows(section);
                normalise_caps(section);
              },
          .restore = [parts](Node& section) { restore(section, parts); }};
}

int64_t kv_heads_of(const ModelConfig& c) {
  const int64_t heads = c.integer("num_key_value_heads");
  return heads > 0 ? heads : c.integer("num_attention_heads");
}

int64_t head_size_of(const ModelConfig& c) {
  const int64_t size = c.integer("head_dim");
  return size > 0 ? size : c.width() / c.integer("num_attention_heads");
}

Activation activation_of(std::string_view name) {
  if (name == "relu") return Activation::relu;
  if (name == "silu" || name == "swish") return Activation::silu;
  return name == "gelu" ? Activation::gelu_erf : Activation::gelu;
}

Activation gate_of(const ModelConfig& c, const MlpPart& part) {
  const Activation kind = activation_of(c.text(part.activation_key.substr(kModelSection.size())));
  return kind == Activation::gelu_erf && part.gelu_is_tanh ? Activation::gelu : kind;
}

bool decoder_exceeds_context(const ModelConfig& c) {
  return rotary_of(c, 0).kind == RotaryKind::dynamic;
}

std::optional<KeyProblem> decoder_problem(const ModelConfig& c) {
  const int64_t width = c.width(), heads = c.integer("num_attention_heads"),
                kv_heads = kv_heads_of(c);
  if (c.integer("head_dim") == 0 && width % heads != 0)
    return KeyProblem{
        {"dstrain.model.num_attention_heads", "dstrain.model.hidden_size"},
        fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", width, heads)};
  if (heads % kv_heads != 0)
    return KeyProblem{
        {"dstrain.model.num_key_value_heads", "dstrain.model.num_attention_heads"},
        fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", heads,
                    kv_heads)};
  if (auto problem = rotary_key_problem(c, head_size_of(c))) return problem;
  return window_problem(c);
}

}  // namespace dstrain::models
