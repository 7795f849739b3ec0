#include "models/decoder/window_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/read/merge.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kSlidingType = "sliding_attention", kFullType = "full_attention";
constexpr std::string_view kTypesText = "window_layers", kTypesList = "layer_types";

// Returns whether layer_types may say which layers have a window.
bool reads_layer_types(const WindowPart& part) {
  return part.layers == WindowedLayers::by_key || part.layers == WindowedLayers::most;
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
      if (std::ranges::all_of(value.items, [](const Node& type) { return type.text == kFullType; }))
        return {State::no_effect, "the usual"};
      return {
          State::not_yet,
          fmt::format("layers of this family have no window: only \"{}\" is available", kFullType)};
    },
    "layers of full attention alone: no_effect; else not_yet"};

bool has_key(const ModelConfig& c, std::string_view name) {
  return std::ranges::find(c.family().keys, name, &ModelKey::name) != c.family().keys.end();
}

}  // namespace

std::vector<ModelKey> window_keys(const DecoderDefaults& defaults, const WindowPart& part) {
  using enum FactChange;
  std::vector<ModelKey> keys;
  if (part.layers != WindowedLayers::none)
    keys.push_back({{.key = "dstrain.model.sliding_window",
                     .type = Type::integer,
                     .fallback = defaults.sliding_window,
                     .note = "keys that a query sees; null: all before it",
                     .min = 0,
                     .max = kMostOfASize,
                     .nullable = true},
                    forbidden});
  if (!reads_layer_types(part)) return keys;
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
  return keys;
}

std::vector<KeySpec> window_fields(const WindowPart& part) {
  std::vector<KeySpec> fields;
  if (part.layers == WindowedLayers::most) {
    fields.push_back(harmless("dstrain.model._sliding_window_pattern", "layer_types says it"));
    fields.push_back(harmless("dstrain.model.cache_implementation", "training keeps no cache"));
    fields.push_back(harmless("dstrain.model.sliding_window_size",
                              "an old name of sliding_window, which transformers ignores"));
  }
  fields.push_back({.key = "dstrain.model.layer_types",
                    .type = Type::strings,
                    .rule = reads_layer_types(part) ? &kLayerTypes : &kFullAttention});
  if (part.layers == WindowedLayers::none)
    fields.push_back(harmless("dstrain.model.sliding_window", "attention of this family has none"));
  return fields;
}

void normalise_windows(Node& section) {
  for (Member& m : section.members) {
    if (m.key != "sliding_window" || !m.value.is(Node::Kind::null)) continue;
    m.value.kind = Node::Kind::integer;
    m.value.integer = 0;
    m.value.real = 0;
  }
  const Member *const types = section.member(kTypesList), *const own = section.member(kTypesText);
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
  const Member* const text = section.member(kTypesText);
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
    if (type != kSlidingType && type != kFullType)
      return KeyProblem{keys,
                        fmt::format("a layer of type \"{}\" is not available: expected \"{}\" "
                                    "or \"{}\"",
                                    type, kFullType, kSlidingType)};
  return std::nullopt;
}

bool has_window(const ModelConfig& c, const WindowPart& part, int64_t layer) {
  if (!reads_layer_types(part)) return part.layers == WindowedLayers::all;
  const bool by_key = part.layers == WindowedLayers::by_key;
  if (by_key && !c.flag("use_sliding_window")) return false;
  const std::vector<std::string> types = layer_types(c);
  // The problem of another number of layers is told, and the model is measured all the same.
  const auto index = static_cast<size_t>(layer);
  if (!types.empty()) return index < types.size() && types[index] == kSlidingType;
  if (by_key) return layer >= c.integer("max_window_layers");
  const int64_t every = part.pattern_key ? c.integer("sliding_window_pattern") : part.whole_every;
  return (layer + 1) % every != 0;
}

int64_t window_of(const ModelConfig& c, const WindowPart& part, int64_t layer) {
  return has_window(c, part, layer) ? c.integer("sliding_window") : 0;
}

}  // namespace dstrain::models
