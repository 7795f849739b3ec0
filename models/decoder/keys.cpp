#include "models/decoder/keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/read/merge.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kRotary = "dstrain.model.rope_parameters.";
// Other places and names of what is in rope_parameters.
constexpr std::array<std::string_view, 13> kOldRotaryNames{
    "dstrain.model.rope_parameters.type",
    "dstrain.model.rope_scaling.type",
    "dstrain.model.rope_scaling.rope_type",
    "dstrain.model.rope_scaling.factor",
    "dstrain.model.rope_scaling.original_max_position_embeddings",
    "dstrain.model.rope_scaling.low_freq_factor",
    "dstrain.model.rope_scaling.high_freq_factor",
    "dstrain.model.rope_scaling.beta_fast",
    "dstrain.model.rope_scaling.beta_slow",
    "dstrain.model.rope_scaling.attention_factor",
    "dstrain.model.rope_scaling.mscale",
    "dstrain.model.rope_scaling.mscale_all_dim",
    "dstrain.model.rope_scaling.truncate",
};

// Returns today's name of a field inside one of the two sections.
std::string_view rotary_name(std::string_view name) {
  return name == "type" ? "rope_type" : name;
}

constexpr Rule kOldRotary{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const std::string_view name = spec.key.substr(spec.key.rfind('.') + 1);
      const std::string today = fmt::format("{}{}", kRotary, rotary_name(name));
      const KeySpec* const target = find_key(facts, today);
      const std::string wrong = target ? type_error(*target, value) : "";
      if (!wrong.empty()) return {State::error, wrong};
      return {State::honoured, "another name of " + today};
    },
    "as in rope_parameters"};

constexpr std::string_view kUsualHeads = "32";
constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";

ModelKey number(std::string_view key, std::string_view fallback, std::string_view note, double min,
                FactChange change) {
  return {{.key = key,
           .type = Type::real,
           .fallback = fallback,
           .note = note,
           .min = min,
           .max = 1e9,
           .nullable = true},
          change};
}

void add_rotary_keys(std::vector<ModelKey>& keys) {
  using enum FactChange;
  keys.push_back({{.key = "dstrain.model.rope_parameters.rope_type",
                   .type = Type::choice,
                   .fallback = "\"default\"",
                   .choices = "default|linear|dynamic|llama3|yarn"},
                  forbidden});
  const auto add = [&keys](std::string_view key, std::string_view fallback, std::string_view note,
                           double min) {
    keys.push_back(number(key, fallback, note, min, forbidden));
  };
  add("dstrain.model.rope_parameters.rope_theta", "10000.0", "", 1);
  add("dstrain.model.rope_parameters.factor", "1.0", "by which samples are longer", 0);
  add("dstrain.model.rope_parameters.original_max_position_embeddings", "0",
      "llama3, yarn; 0: max_position_embeddings", 0);
  add("dstrain.model.rope_parameters.low_freq_factor", "1.0", "llama3", 0);
  add("dstrain.model.rope_parameters.high_freq_factor", "4.0", "llama3", 0);
  add("dstrain.model.rope_parameters.beta_fast", "32.0", "yarn", 0);
  add("dstrain.model.rope_parameters.beta_slow", "1.0", "yarn", 0);
  add("dstrain.model.rope_parameters.attention_factor", "0",
      "yarn; 0: as follows from factor, or from mscale and mscale_all_dim", 0);
  add("dstrain.model.rope_parameters.mscale", "0", "yarn", 0);
  add("dstrain.model.rope_parameters.mscale_all_dim", "0", "yarn", 0);
  keys.push_back({{.key = "dstrain.model.rope_parameters.truncate",
                   .fallback = "true",
                   .note = "yarn",
                   .nullable = true},
                  forbidden});
}

void add_window_keys(const DecoderDefaults& defaults, const DecoderFeatures& features,
                     std::vector<ModelKey>& keys) {
  using enum FactChange;
  if (features.window || features.window_layers)
    keys.push_back({{.key = "dstrain.model.sliding_window",
                     .type = Type::integer,
                     .fallback = defaults.sliding_window,
                     .note = "keys that a query sees; null: all before it",
                     .min = 0,
                     .max = kMostOfASize,
                     .nullable = true},
                    forbidden});
  if (!features.window_layers) return;
  keys.push_back({{.key = "dstrain.model.use_sliding_window", .fallback = "false"}, forbidden});
  keys.push_back({{.key = "dstrain.model.max_window_layers",
                   .type = Type::integer,
                   .fallback = "28",
                   .note = "layers without a window, at the beginning",
                   .min = 0,
                   .max = kMostOfASize},
                  forbidden});
  keys.push_back({{.key = "dstrain.model.window_layers",
                   .type = Type::string,
                   .fallback = "\"\"",
                   .note = "layer_types as one text: which layers have a window, instead of "
                           "max_window_layers"},
                  forbidden});
}

std::vector<std::string> layer_types(const ModelConfig& c) {
  std::vector<std::string> types;
  std::string_view text = c.text("window_layers");
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    types.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return types;
}

bool has_key(const ModelConfig& c, std::string_view name) {
  return std::ranges::find(c.family().keys, name, &ModelKey::name) != c.family().keys.end();
}

Member* member_of(Node& section, std::string_view name) {
  for (Member& m : section.members)
    if (m.key == name) return &m;
  return nullptr;
}

void move_member(Node& section, std::string_view from, std::string_view to) {
  const Member* const old = member_of(section, from);
  if (!old || find(section, to)) return;
  const Node value = old->value;
  put(section, to, value);
}

// Version 4 of transformers has rope_theta, and the rest in rope_scaling, where the oldest files call its kind "type".
void normalise_rotary(Node& section) {
  if (Member* const own = member_of(section, "rope_parameters");
      own && own->value.is(Node::Kind::null))
    std::erase_if(section.members, [](const Member& m) { return m.key == "rope_parameters"; });
  if (const Member* const scaling = member_of(section, "rope_scaling")) {
    const std::vector<Member> members = scaling->value.members;
    for (const Member& m : members) {
      const std::string path = fmt::format("rope_parameters.{}", rotary_name(m.key));
      if (!find(section, path)) put(section, path, m.value);
    }
  }
  move_member(section, "rope_theta", "rope_parameters.rope_theta");
  if (Member* const own = member_of(section, "rope_parameters"))
    move_member(own->value, "type", "rope_type");
}

// As many heads of keys and values as of queries are null in some files, where the family has another default.
void normalise_heads(Node& section) {
  Member* const kv_heads = member_of(section, "num_key_value_heads");
  if (!kv_heads || !kv_heads->value.is(Node::Kind::null)) return;
  if (const Member* const heads = member_of(section, "num_attention_heads"))
    kv_heads->value = heads->value;
  else
    kv_heads->value = read_value(kUsualHeads, Source::model_file);
}

// Keys hold no lists, and no null beside a default.
void normalise_windows(Node& section) {
  if (Member* const window = member_of(section, "sliding_window");
      window && window->value.is(Node::Kind::null)) {
    window->value.kind = Node::Kind::integer;
    window->value.integer = 0;
    window->value.real = 0;
  }
  const Member* const types = member_of(section, "layer_types");
  if (!types || !types->value.is(Node::Kind::array)) return;
  Node text = types->value;
  text.kind = Node::Kind::string;
  text.items.clear();
  for (const Node& type : types->value.items)
    text.text += (text.text.empty() ? "" : ",") + type.text;
  put(section, "window_layers", std::move(text));
}

void normalise(Node& section) {
  normalise_rotary(section);
  normalise_heads(section);
  normalise_windows(section);
}

std::vector<std::string> ignored_tensors(const ModelConfig& c) {
  std::vector<std::string> patterns{"layers.*.self_attn.rotary_emb.inv_freq"};
  if (c.flag("tie_word_embeddings")) patterns.emplace_back("lm_head.weight");
  return patterns;
}

std::optional<KeyProblem> window_problem(const ModelConfig& c) {
  if (!has_key(c, "window_layers")) return std::nullopt;
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

std::vector<ModelKey> decoder_keys(const DecoderDefaults& d, const DecoderFeatures& features) {
  using enum FactChange;
  const auto optional_size = [](std::string_view key, std::string_view fallback,
                                std::string_view note) {
    KeySpec spec = size_key(key, fallback, note);
    spec.nullable = true;
    return spec;
  };
  std::vector<ModelKey> keys{
      {size_key("dstrain.model.num_hidden_layers", "32", "blocks", kMostLayers)},
      {size_key("dstrain.model.hidden_size", "4096", "channels")},
      {size_key("dstrain.model.intermediate_size", d.intermediate_size, "channels inside the MLP")},
      {size_key("dstrain.model.num_attention_heads", kUsualHeads, ""), forbidden},
      {optional_size("dstrain.model.num_key_value_heads", d.num_key_value_heads,
                     "unset: num_attention_heads"),
       forbidden},
      {optional_size("dstrain.model.head_dim", d.head_dim,
                     "unset: hidden_size / num_attention_heads"),
       forbidden},
      {size_key("dstrain.model.max_position_embeddings", d.max_position_embeddings,
                "the most tokens of a sample")},
      {{.key = "dstrain.model.hidden_act",
        .type = Type::choice,
        .fallback = "\"silu\"",
        .choices = "silu|swish"},
       forbidden},
      number("dstrain.model.rms_norm_eps", "1e-06", "", 0, forbidden),
      number("dstrain.model.initializer_range", "0.02", "standard deviation of fresh weights", 0,
             irrelevant),
      {{.key = "dstrain.model.attention_dropout",
        .type = Type::real,
        .fallback = "0.0",
        .min = 0,
        .max = 1,
        .open = true,
        .nullable = true},
       allowed},
  };
  if (features.attention_bias_key)
    keys.push_back({{.key = "dstrain.model.attention_bias", .fallback = "false"}});
  if (features.mlp_bias_key)
    keys.push_back({{.key = "dstrain.model.mlp_bias", .fallback = "false"}});
  add_window_keys(d, features, keys);
  add_rotary_keys(keys);
  keys.push_back({{.key = "dstrain.model.tie_word_embeddings",
                   .fallback = "false",
                   .note = "the head is the token embedding"}});
  keys.push_back({size_key("dstrain.model.vocab_size", d.vocab_size, "")});
  return keys;
}

HuggingFace decoder_directories(std::string_view architecture, const DecoderFeatures& features) {
  std::vector<KeySpec> own{
      {.key = "dstrain.model.rope_parameters", .type = Type::section, .nullable = true},
      {.key = "dstrain.model.rope_scaling",
       .type = Type::section,
       .note = "an old name of rope_parameters",
       .nullable = true},
      {.key = "dstrain.model.rope_theta",
       .type = Type::real,
       .note = "an old place of rope_parameters.rope_theta",
       .min = 1,
       .max = 1e9},
      fixed("dstrain.model.rope_parameters.partial_rotary_factor", Type::real, "1.0",
            "positions in a part of each head"),
      fixed("dstrain.model.partial_rotary_factor", Type::real, "1.0",
            "positions in a part of each head"),
      fixed("dstrain.model.use_mrope", Type::boolean, "false", "positions of several dimensions"),
      harmless("dstrain.model.pretraining_tp", "products are not divided"),
  };
  for (const std::string_view name : kOldRotaryNames)
    own.push_back({.key = name, .type = Type::any, .rule = &kOldRotary});
  if (!features.attention_bias_key)
    own.push_back(fixed("dstrain.model.attention_bias", Type::boolean, "false",
                        "biases of attention's products"));
  if (!features.mlp_bias_key)
    own.push_back(
        fixed("dstrain.model.mlp_bias", Type::boolean, "false", "biases of the MLP's products"));
  if (features.window_layers)
    own.push_back({.key = "dstrain.model.layer_types", .type = Type::strings});
  if (!features.window && !features.window_layers)
    own.push_back(harmless("dstrain.model.sliding_window", "attention of this family has none"));
  return {.fields = fields_with(own),
          .architecture = architecture,
          .prefix = "model.",
          .ignored = ignored_tensors,
          .normalise = normalise};
}

int64_t kv_heads_of(const ModelConfig& c) {
  const int64_t heads = c.integer("num_key_value_heads");
  return heads > 0 ? heads : c.integer("num_attention_heads");
}

int64_t head_size_of(const ModelConfig& c) {
  const int64_t size = c.integer("head_dim");
  return size > 0 ? size : c.width() / c.integer("num_attention_heads");
}

int64_t window_of(const ModelConfig& c, const DecoderFeatures& features, int64_t layer) {
  if (features.window) return c.integer("sliding_window");
  if (!features.window_layers || !c.flag("use_sliding_window")) return 0;
  const std::vector<std::string> types = layer_types(c);
  // The problem of another number of layers is told, and the model is measured all the same.
  const auto index = static_cast<size_t>(layer);
  const bool slides = types.empty() ? layer >= c.integer("max_window_layers")
                                    : index < types.size() && types[index] == kSliding;
  return slides ? c.integer("sliding_window") : 0;
}

RotaryAttrs rotary_of(const ModelConfig& c) {
  constexpr std::array<std::pair<std::string_view, RotaryKind>, 4> kinds{
      {{"linear", RotaryKind::linear},
       {"dynamic", RotaryKind::dynamic},
       {"llama3", RotaryKind::llama3},
       {"yarn", RotaryKind::yarn}}};
  const auto real = [&c](std::string_view name) {
    return c.real(fmt::format("rope_parameters.{}", name));
  };
  RotaryAttrs attrs{.head_size = head_size_of(c),
                    .theta = real("rope_theta"),
                    .factor = real("factor"),
                    .original_positions = real("original_max_position_embeddings"),
                    .low_freq_factor = real("low_freq_factor"),
                    .high_freq_factor = real("high_freq_factor"),
                    .beta_fast = real("beta_fast"),
                    .beta_slow = real("beta_slow"),
                    .truncate = c.flag("rope_parameters.truncate"),
                    .attention_factor = real("attention_factor"),
                    .mscale = real("mscale"),
                    .mscale_all_dim = real("mscale_all_dim")};
  for (const auto& [name, kind] : kinds)
    if (c.text("rope_parameters.rope_type") == name) attrs.kind = kind;
  if (attrs.original_positions == 0 || attrs.kind == RotaryKind::dynamic)
    attrs.original_positions = static_cast<double>(c.context());
  return attrs;
}

bool decoder_exceeds_context(const ModelConfig& c) {
  return rotary_of(c).kind == RotaryKind::dynamic;
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
  if (const std::string_view problem = rotary_problem(rotary_of(c)); !problem.empty())
    return KeyProblem{
        {"dstrain.model.rope_parameters", "dstrain.model.rope_scaling", "dstrain.model.head_dim"},
        fmt::format("the position embedding: {}", problem)};
  return window_problem(c);
}

}  // namespace dstrain::models
