#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "models/decoder/mixture.h"
#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/read/merge.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kDenseText = "dense_layers", kDenseList = "mlp_only_layers";

void erase_member(Node& section, std::string_view name) {
  std::erase_if(section.members, [name](const Member& m) { return m.key == name; });
}

// Returns the numbers in a text; nothing if it has something else.
std::optional<std::vector<int64_t>> numbers_in(std::string_view text) {
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 0) return std::nullopt;
    numbers.push_back(number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty() && text.front() != ',') return std::nullopt;
    text.remove_prefix(std::min<size_t>(1, text.size()));
  }
  return numbers;
}

std::string text_of_list(const Node& list) {
  std::string text;
  for (const Node& number : list.items) {
    if (!text.empty()) text += ',';
    text += json_text(number);
  }
  return text;
}

// Returns what a field says of which the key says something else.
Judgement other_than_key(std::string_view key, std::string_view what) {
  return {State::error,
          fmt::format("is given together with {}, which has other {}: keep one", key, what)};
}

constexpr std::string_view kExperts = "dstrain.model.num_experts",
                           kLocalExperts = "dstrain.model.num_local_experts",
                           kDenseKey = "dstrain.model.dense_layers";

constexpr Rule kOtherName{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const std::string_view key = spec.key == kExperts ? kLocalExperts : kExperts;
      const Member* const own = find(*facts.root, key);
      if (!own || json_text(own->value) == json_text(value)) return {};
      return other_than_key(key, "experts");
    },
    "error if the other name says otherwise; else honoured"};

constexpr Rule kDenseLayers{[](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
                              const Member* const text = find(*facts.root, kDenseKey);
                              if (!text || text->value.text == text_of_list(value)) return {};
                              return other_than_key(kDenseKey, "layers");
                            },
                            "error if dense_layers says otherwise; else honoured"};

}  // namespace

std::vector<ModelKey> mixture_keys(const MixturePart& part) {
  using enum FactChange;
  if (!part.has_experts()) return {};
  std::vector<ModelKey> keys{{size_key(part.experts_path, part.experts, "experts of a layer")},
                             {size_key("dstrain.model.num_experts_per_tok", part.per_token,
                                       "experts that a token chooses"),
                              forbidden}};
  if (part.width_path != MixturePart{}.width_path)
    keys.push_back({size_key(part.width_path, part.width, "channels inside an expert")});
  if (!part.always_normalised)
    keys.push_back({{.key = "dstrain.model.norm_topk_prob",
                     .fallback = part.normalised,
                     .note = "the weights of a token's experts add up to 1"},
                    forbidden});
  if (part.shared.exists())
    keys.push_back({size_key(
        part.shared.path, part.shared.fallback,
        part.shared.in_experts ? "by how many experts' channels the expert is wide that all tokens "
                                 "have"
                               : "channels inside the expert that all tokens have")});
  if (!part.groups.empty()) {
    keys.push_back(
        {size_key("dstrain.model.n_group", part.groups, "groups of experts", 64), forbidden});
    keys.push_back({size_key("dstrain.model.topk_group", part.kept_groups,
                             "groups from which a token chooses experts"),
                    forbidden});
  }
  if (!part.scaling.empty())
    keys.push_back({real_key("dstrain.model.routed_scaling_factor", part.scaling,
                             "by which the weights of a token's experts are multiplied", 0),
                    forbidden});
  if (!part.dense_first.empty())
    keys.push_back({{.key = "dstrain.model.first_k_dense_replace",
                     .type = Type::integer,
                     .fallback = part.dense_first,
                     .note = "layers without experts, at the beginning",
                     .min = 0,
                     .max = kMostLayers},
                    forbidden});
  if (part.some_layers) {
    keys.push_back(
        {size_key("dstrain.model.decoder_sparse_step", "1", "every so many layers one has experts"),
         forbidden});
    keys.push_back({{.key = "dstrain.model.dense_layers",
                     .type = Type::string,
                     .fallback = "\"\"",
                     .note = "mlp_only_layers as one text: the numbers of layers without experts"},
                    forbidden});
  }
  if (part.balance.empty()) return keys;
  keys.push_back({{.key = "dstrain.model.output_router_logits",
                   .fallback = "false",
                   .note = "a loss keeps the choices of experts balanced"},
                  allowed});
  keys.push_back(
      {real_key("dstrain.model.router_aux_loss_coef", part.balance, "the weight of that loss", 0),
       allowed});
  return keys;
}

std::vector<KeySpec> mixture_fields(const MixturePart& part) {
  std::vector<KeySpec> fields;
  if (!part.has_experts()) return fields;
  if (!part.experts_alias.empty())
    fields.push_back({.key = part.experts_alias, .type = Type::any, .rule = &kOtherName});
  if (part.some_layers)
    fields.push_back(
        {.key = "dstrain.model.mlp_only_layers", .type = Type::any, .rule = &kDenseLayers});
  if (part.has_jitter)
    fields.push_back(fixed("dstrain.model.router_jitter_noise", Type::real, "0.0",
                           "noise in front of the router"));
  return fields;
}

// Keys hold no lists. What both forms say is compared by the rules of these fields.
void normalise_mixture(Node& section, const MixturePart& part) {
  if (!part.has_experts()) return;
  if (!part.experts_alias.empty()) {
    const Member* const other = section.member(part.experts_alias.substr(kModelSection.size()));
    if (other && !section.member(part.experts_key()))
      put(section, part.experts_key(), Node(other->value));
  }
  const Member* const list = section.member(kDenseList);
  const Member* const own = section.member(kDenseText);
  if (!part.some_layers || !list || !list->value.is(Node::Kind::array)) return;
  if (own && !own->value.text.empty()) return;
  Node text = list->value;
  text.kind = Node::Kind::string;
  text.text = text_of_list(list->value);
  text.items.clear();
  put(section, kDenseText, std::move(text));
}

void restore_mixture(Node& section, const MixturePart& part) {
  const Member* const text = section.member(kDenseText);
  if (!part.some_layers || !text) return;
  Node list;
  list.kind = Node::Kind::array;
  for (const int64_t number : numbers_in(text->value.text).value_or(std::vector<int64_t>{}))
    list.items.push_back(read_value(std::to_string(number), Source::model_file));
  erase_member(section, kDenseText);
  put(section, kDenseList, std::move(list));
}

std::optional<KeyProblem> mixture_problem(const ModelConfig& c, const MixturePart& part) {
  if (!part.has_experts()) return std::nullopt;
  const int64_t experts = c.integer(part.experts_key()), chosen = c.integer("num_experts_per_tok");
  if (chosen > experts)
    return KeyProblem{{"dstrain.model.num_experts_per_tok", part.experts_path},
                      fmt::format("a token chooses {} of {} experts", chosen, experts)};
  if (!part.groups.empty()) {
    const int64_t groups = c.integer("n_group"), kept = c.integer("topk_group");
    const std::string_view groups_key = "dstrain.model.n_group",
                           kept_key = "dstrain.model.topk_group";
    if (experts % groups != 0 || experts / groups < 2)
      return KeyProblem{
          {groups_key, part.experts_path},
          fmt::format("{} experts do not divide into {} groups of 2 or more", experts, groups)};
    if (kept > groups)
      return KeyProblem{{kept_key, groups_key},
                        fmt::format("a token chooses from {} of {} groups", kept, groups)};
    if (chosen > experts / groups * kept)
      return KeyProblem{{"dstrain.model.num_experts_per_tok", kept_key},
                        fmt::format("a token chooses {} experts from {} groups of {}", chosen, kept,
                                    experts / groups)};
  }
  if (!part.some_layers) return std::nullopt;
  const auto dense = numbers_in(c.text(kDenseText));
  if (!dense)
    return KeyProblem{{"dstrain.model.mlp_only_layers", "dstrain.model.dense_layers"},
                      fmt::format("\"{}\" are no numbers of layers: expected \"0,3\" or the like",
                                  c.text(kDenseText))};
  return std::nullopt;
}

void shrink_mixture(ModelConfig& c, const MixturePart& part) {
  if (!part.dense_first.empty())
    c.set("first_k_dense_replace", std::min(c.integer("first_k_dense_replace"), c.layers() - 1));
  if (part.groups.empty()) return;
  const int64_t experts = c.integer(part.experts_key());
  const bool grouped = c.integer("n_group") > 1 && experts >= 4 && experts % 2 == 0;
  c.set("topk_group", grouped && c.integer("topk_group") == c.integer("n_group") ? 2 : 1);
  c.set("n_group", grouped ? 2 : 1);
}

int64_t shared_width(const ModelConfig& c, const MixturePart& part) {
  const int64_t of_key = c.integer(part.shared_key());
  return part.shared.in_experts ? of_key * c.integer(part.width_key()) : of_key;
}

bool has_experts(const ModelConfig& c, const MixturePart& part, int64_t layer) {
  if (!part.has_experts()) return false;
  if (!part.dense_first.empty()) return layer >= c.integer("first_k_dense_replace");
  if (!part.some_layers) return true;
  const auto dense = numbers_in(c.text(kDenseText)).value_or(std::vector<int64_t>{});
  return std::ranges::find(dense, layer) == dense.end() &&
         (layer + 1) % c.integer("decoder_sparse_step") == 0;
}

WeightMap mixture_weights(const ModelConfig& c, const MixturePart& part) {
  WeightMap map;
  const int64_t experts = c.integer(part.experts_key()), width = c.integer(part.width_key());
  for (int64_t layer = 0; layer < c.layers(); ++layer) {
    if (!has_experts(c, part, layer)) continue;
    const std::string all = fmt::format("model.layers.{}.{}.experts.", layer, part.block);
    for (const auto& [name, rows] :
         {std::pair{part.gate, width}, {part.up, width}, {part.down, c.width()}}) {
      WeightEntry entry{.parameter = fmt::format("{}{}.weight", all, name), .parts = {}};
      for (int64_t e = 0; e < experts; ++e)
        entry.parts.push_back(
            {.tensor = fmt::format("{}{}.{}.weight", all, e, name), .rows = rows});
      map.push_back(std::move(entry));
    }
  }
  return map;
}

}  // namespace dstrain::models
