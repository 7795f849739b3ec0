#include "models/decoder/keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "models/decoder/mixture.h"
#include "models/decoder/rotary_keys.h"
#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/read/merge.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";
constexpr std::string_view kUsualActivation = "dstrain.model.hidden_act";
constexpr std::string_view kScoresCap = "dstrain.model.attn_logit_softcapping",
                           kLogitsCap = "dstrain.model.final_logit_softcapping",
                           kClip = "dstrain.model.clip_qkv";
constexpr std::string_view kTypesText = "window_layers", kTypesList = "layer_types";

// Returns whether layer_types may say which layers have a window.
bool reads_layer_types(const WindowPart& part) {
  return part.layers == WindowedLayers::by_key || part.layers == WindowedLayers::most;
}

void add_window_keys(const DecoderDefaults& defaults, const WindowPart& part,
                     std::vector<ModelKey>& keys) {
  using enum FactChange;
  if (part.layers != WindowedLayers::none)
    keys.push_back({{.key = "dstrain.model.sliding_window",
                     .type = Type::integer,
                     .fallback = defaults.sliding_window,
                     .note = "keys that a query sees; null: all before it",
                     .min = 0,
                     .max = kMostOfASize,
                     .nullable = true},
                    forbidden});
  if (!reads_layer_types(part)) return;
  if (part.layers == WindowedLayers::by_key) {
    keys.push_back({{.key = "dstrain.model.use_sliding_window", .fallback = "false"}, forbidden});
    keys.push_back({{.key = "dstrain.model.max_window_layers",
                     .type = Type::integer,
                     .fallback = "28",
                     .note = "layers without a window, at the beginning",
                     .min = 0,
                     .max = kMostOfASize},
                    forbidden});
  }
  if (part.pattern_key)
    keys.push_back({size_key("dstrain.model.sliding_window_pattern", "6",
                             "every so many layers one has no window"),
                    forbidden});
  keys.push_back({{.key = "dstrain.model.window_layers",
                   .type = Type::string,
                   .fallback = "\"\"",
                   .note = "layer_types as one text: which layers have a window, instead of "
                           "max_window_layers or a pattern"},
                  forbidden});
}

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

std::vector<std::string> types_in(std::string_view text) {
  std::vector<std::string> types;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    types.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return types;
}

std::string text_of_types(const Node& list) {
  std::string text;
  for (const Node& type : list.items) text += (text.empty() ? "" : ",") + type.text;
  return text;
}

std::vector<std::string> layer_types(const ModelConfig& c) {
  return types_in(c.text(kTypesText));
}

constexpr Rule kLayerTypes{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const Member* const text = find(*facts.root, "dstrain.model.window_layers");
      if (!text || text->value.text == text_of_types(value)) return {};
      return {State::error,
              "is given together with dstrain.model.window_layers, which has other types: keep "
              "one"};
    },
    "error if window_layers says otherwise; else honoured"};

constexpr Rule kFullAttention{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      if (std::ranges::all_of(value.items, [](const Node& type) { return type.text == kFull; }))
        return {State::no_effect, "the usual"};
      return {State::not_yet,
              fmt::format("layers of this family have no window: only \"{}\" is available", kFull)};
    },
    "layers of full attention alone: no_effect; else not_yet"};

bool has_key(const ModelConfig& c, std::string_view name) {
  return std::ranges::find(c.family().keys, name, &ModelKey::name) != c.family().keys.end();
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

// Keys hold no lists, and no null beside a default.
void normalise_windows(Node& section) {
  if (Member* const window = member_of(section, "sliding_window");
      window && window->value.is(Node::Kind::null)) {
    window->value.kind = Node::Kind::integer;
    window->value.integer = 0;
    window->value.real = 0;
  }
  const Member *const types = member_of(section, kTypesList), *const own =
                                                                  member_of(section, kTypesText);
  if (!types || !types->value.is(Node::Kind::array)) return;
  if (own && !own->value.text.empty()) return;  // the rule of layer_types compares them
  Node text = types->value;
  text.kind = Node::Kind::string;
  text.text = text_of_types(types->value);
  text.items.clear();
  put(section, kTypesText, std::move(text));
}

// transformers do not know the text.
void restore_windows(Node& section) {
  const Member* const text = member_of(section, kTypesText);
  if (!text) return;
  Node list;
  list.kind = Node::Kind::array;
  for (const std::string& type : types_in(text->value.text)) {
    Node item;
    item.kind = Node::Kind::string;
    item.text = type;
    list.items.push_back(std::move(item));
  }
  std::erase_if(section.members, [](const Member& m) { return m.key == kTypesText; });
  if (!list.items.empty()) put(section, kTypesList, std::move(list));
}

void restore(Node& section, const DecoderParts& parts) {
  // transformers derives the size where the key is absent, and fails at a null in families whose settings lack it.
  std::erase_if(section.members, [&parts](const Member& m) {
    return !parts.null_head_dim && m.key == "head_dim" && m.value.is(Node::Kind::null);
  });
  restore_mixture(section, parts.mixture);
  restore_rotary(section, parts.rotary);
  restore_windows(section);
  restore_caps(section);
}

std::vector<std::string> ignored_tensors(const ModelConfig& c) {
  std::vector<std::string> patterns{"layers.*.self_attn.rotary_emb.inv_freq"};
  if (c.flag("tie_word_embeddings")) patterns.emplace_back(kHeadTensor);
  return patterns;
}

std::optional<KeyProblem> window_problem(const ModelConfig& c) {
  if (!has_key(c, kTypesText)) return std::nullopt;
  const std::vector<std::string> types = layer_types(c);
  if (types.empty()) return std::nullopt;
  const std::vector<std::string_view> keys{"dstrain.model.layer_types",
                                           "dstrain.model.window_layers"};
  if (static_cast<int64_t>(types.size()) != c.layers())
    return KeyProblem{keys, fmt::format("layer_types has {} layers, and num_hidden_layers is {}",
                                        types.size(), c.layers())};
  for (const std::string& type : types)
    if (type != kSliding && type != kFull)
      return KeyProblem{keys,
                        fmt::format("a layer of type \"{}\" is not available: expected \"{}\" "
                                    "or \"{}\"",
                                    type, kFull, kSliding)};
  return std::nullopt;
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
      {optional_size("dstrain.model.head_dim", d.head_dim,
                     "unset: hidden_size / num_attention_heads"),
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
  if (parts.biases == AttentionBiases::by_key)
    keys.push_back({{.key = "dstrain.model.attention_bias", .fallback = "false"}});
  if (parts.mlp.bias_key) keys.push_back({{.key = "dstrain.model.mlp_bias", .fallback = "false"}});
  add_scores_keys(parts.scores, keys);
  add_window_keys(d, parts.windows, keys);
  std::ranges::move(mixture_keys(parts.mixture), std::back_inserter(keys));
  std::ranges::move(rotary_keys(parts.rotary), std::back_inserter(keys));
  keys.push_back({{.key = "dstrain.model.tie_word_embeddings",
                   .fallback = d.tie_word_embeddings,
                   .note = "the head is the token embedding"}});
  keys.push_back({size_key("dstrain.model.vocab_size", d.vocab_size, "")});
  return keys;
}

HuggingFace decoder_directories(std::string_view architecture, const DecoderDefaults& defaults,
                                const DecoderParts& parts) {
  std::vector<KeySpec> own = rotary_fields(parts.rotary);
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
  if (parts.windows.layers == WindowedLayers::most) {
    own.push_back(harmless("dstrain.model._sliding_window_pattern", "layer_types says it"));
    own.push_back(harmless("dstrain.model.cache_implementation", "training keeps no cache"));
    own.push_back(harmless("dstrain.model.sliding_window_size",
                           "an old name of sliding_window, which transformers ignores"));
  }
  if (parts.scores.softcap.empty() && !parts.scores.logits_softcap.empty())
    own.push_back(fixed(kScoresCap, Type::real, "null", "a limit of scores"));
  if (!parts.mlp.bias_key)
    own.push_back(
        fixed("dstrain.model.mlp_bias", Type::boolean, "false", "biases of the MLP's products"));
  own.push_back({.key = "dstrain.model.layer_types",
                 .type = Type::strings,
                 .rule = reads_layer_types(parts.windows) ? &kLayerTypes : &kFullAttention});
  if (parts.windows.layers == WindowedLayers::none)
    own.push_back(harmless("dstrain.model.sliding_window", "attention of this family has none"));
  return {.fields = fields_with(own),
          .architecture = architecture,
          .prefix = "model.",
          .table = "model.embed_tokens.weight",
          .ignored = ignored_tensors,
          .normalise =
              [parts, heads = defaults.num_attention_heads](Node& section) {
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

bool has_window(const ModelConfig& c, const WindowPart& part, int64_t layer) {
  if (!reads_layer_types(part)) return part.layers == WindowedLayers::all;
  const bool by_key = part.layers == WindowedLayers::by_key;
  if (by_key && !c.flag("use_sliding_window")) return false;
  const std::vector<std::string> types = layer_types(c);
  // The problem of another number of layers is told, and the model is measured all the same.
  const auto index = static_cast<size_t>(layer);
  if (!types.empty()) return index < types.size() && types[index] == kSliding;
  if (by_key) return layer >= c.integer("max_window_layers");
  const int64_t every = part.pattern_key ? c.integer("sliding_window_pattern") : part.whole_every;
  return (layer + 1) % every != 0;
}

int64_t window_of(const ModelConfig& c, const WindowPart& part, int64_t layer) {
  return has_window(c, part, layer) ? c.integer("sliding_window") : 0;
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
  return rotary_of(c, head_size_of(c)).kind == RotaryKind::dynamic;
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
