#include "models/decoder/rotary_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "models/decoder/rotary_sections.h"
#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/text.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kTodaySection = "dstrain.model.rope_parameters",
                           kOlderSection = "dstrain.model.rope_scaling",
                           kShareKey = "dstrain.model.rope_parameters.partial_rotary_factor";

// Other places and names of what is in rope_parameters.
constexpr std::array<std::string_view, 14> kOldRotaryNames{
    "dstrain.model.rope_parameters.type",
    "dstrain.model.rope_scaling.type",
    "dstrain.model.rope_scaling.rope_type",
    "dstrain.model.rope_scaling.rope_theta",
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

// The fields of layers without a window, where rope_parameters has a section for either kind of layers.
constexpr std::array<std::string_view, 13> kWholeNames{
    "dstrain.model.rope_parameters.full_attention.type",
    "dstrain.model.rope_parameters.full_attention.rope_type",
    "dstrain.model.rope_parameters.full_attention.rope_theta",
    "dstrain.model.rope_parameters.full_attention.factor",
    "dstrain.model.rope_parameters.full_attention.original_max_position_embeddings",
    "dstrain.model.rope_parameters.full_attention.low_freq_factor",
    "dstrain.model.rope_parameters.full_attention.high_freq_factor",
    "dstrain.model.rope_parameters.full_attention.beta_fast",
    "dstrain.model.rope_parameters.full_attention.beta_slow",
    "dstrain.model.rope_parameters.full_attention.attention_factor",
    "dstrain.model.rope_parameters.full_attention.mscale",
    "dstrain.model.rope_parameters.full_attention.mscale_all_dim",
    "dstrain.model.rope_parameters.full_attention.truncate",
};

// Returns a field of a section, with transformers' default of those that every section has.
Node field_of(const Node& section, std::string_view name) {
  const Member* const member = section.member(name);
  if (!is_null(member)) return member->value;
  if (name == "rope_theta") return read_value("10000.0", Source::model_file);
  if (name == "rope_type") return read_value(kUsualRotation, Source::model_file);
  return {};
}

bool same_value(const Node& a, const Node& b) {
  const auto x = to_real(a, false), y = to_real(b, false);
  return x && y ? *x == *y : json_text(a) == json_text(b);
}

// Returns the first field that two sections have with different values; empty: there is none.
std::string difference(const Node& a, const Node& b) {
  for (const Node* const section : {&a, &b})
    for (const Member& m : section->members)
      if (!same_value(field_of(a, m.key), field_of(b, m.key))) return m.key;
  return "";
}

bool is_set(const Member& member) {
  return member.place.source == Source::set || std::ranges::any_of(member.value.members, is_set);
}

// transformers read rope_scaling alone where both say something. The section that --set has made is the one to leave out.
constexpr Rule kRotarySections{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      const Judgement legal{State::honoured, "", true};
      const Member* const model = find(*facts.root, kModelSectionName);
      const Member* const today = model ? section_in(model->value, kRotarySection) : nullptr;
      const Member* const older = model ? section_in(model->value, kOldRotarySection) : nullptr;
      if (!today || !older) return legal;
      Node other = completed(model->value, older->value);
      if (const Member* const theta = model->value.member("rope_theta"); !is_null(theta))
        usual_member(other, "rope_theta", theta->value);
      const std::string field = difference(today->value, other);
      const bool blames_today = is_set(*today) && !is_set(*older);
      if (field.empty() || (spec.key == kTodaySection) != blames_today) return legal;
      return {State::error,
              fmt::format("is given together with {}, which has another {}: keep one",
                          blames_today ? kOlderSection : kTodaySection, printable(field))};
    },
    "error if rope_parameters and rope_scaling say different things; else honoured"};

constexpr Rule kOuterTheta{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const Member* const inner = find(*facts.root, fmt::format("{}.rope_theta", kTodaySection));
      if (is_null(inner) || same_value(inner->value, value)) return {};
      const bool older = !is_null(find(*facts.root, fmt::format("{}.rope_theta", kOlderSection)));
      return {
          State::error,
          fmt::format("is given together with {}.rope_theta, which is {}: keep one",
                      older ? kOlderSection : kTodaySection, printable(json_text(inner->value)))};
    },
    "error if a section has another rope_theta; else honoured"};

constexpr Rule kLocalThetaPlaces{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const Member* const outer = find(*facts.root, "dstrain.model.rope_local_base_freq");
      if (is_null(outer) || same_value(outer->value, value)) return {};
      return {State::error,
              fmt::format("is given together with dstrain.model.rope_local_base_freq, which is {}: "
                          "keep one",
                          printable(json_text(outer->value)))};
    },
    "error if rope_local_base_freq is another one; else honoured"};

constexpr Rule kOuterShare{[](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
                             const Member* const inner = find(*facts.root, kShareKey);
                             if (is_null(inner) || same_value(inner->value, value)) return {};
                             return {State::error,
                                     fmt::format("is given together with {}, which is {}: keep one",
                                                 kShareKey, printable(json_text(inner->value)))};
                           },
                           "error if rope_parameters has another one; else honoured"};

constexpr Rule kOuterPositions{
    [](const Facts&, const KeySpec&, const Node&) -> Judgement {
      return {State::no_effect,
              fmt::format("transformers leaves it out: {}.original_max_position_embeddings counts",
                          kTodaySection),
              false, true};
    },
    "no_effect, with a warning"};

constexpr Rule kOldRotary{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const size_t dot = spec.key.rfind('.');
      std::string_view name = spec.key.substr(dot + 1);
      if (name == "type") {
        name = "rope_type";
        const Member* const kind =
            find(*facts.root, fmt::format("{}.{}", spec.key.substr(0, dot), name));
        if (kind && !same_value(kind->value, value))
          return {State::no_effect, "rope_type goes before it"};
      }
      const std::string today = fmt::format("{}.{}", kTodaySection, name);
      const KeySpec* const target = find_key(facts, today);
      const std::string wrong = target ? type_error(*target, value) : "";
      if (!wrong.empty()) return {State::error, wrong};
      return {State::honoured, "another name of " + today};
    },
    "as in rope_parameters"};

}  // namespace

std::vector<ModelKey> rotary_keys(const RotaryPart& part) {
  using enum FactChange;
  std::vector<ModelKey> keys{{{.key = "dstrain.model.rope_parameters.rope_type",
                               .type = Type::choice,
                               .fallback = kUsualRotation,
                               .choices = "default|linear|dynamic|llama3|yarn"},
                              forbidden}};
  const auto add = [&keys](std::string_view key, std::string_view fallback, std::string_view note,
                           double least) {
    keys.push_back({real_key(key, fallback, note, least), forbidden});
  };
  add("dstrain.model.rope_parameters.rope_theta", part.theta, "", 1);
  add("dstrain.model.rope_parameters.factor", kFactor.fallback,
      "by which samples are longer; all but default need it", 0);
  add("dstrain.model.rope_parameters.original_max_position_embeddings", "0",
      "llama3, yarn; 0: max_position_embeddings", 0);
  add("dstrain.model.rope_parameters.low_freq_factor", kLow.fallback, "llama3, which needs it", 0);
  add("dstrain.model.rope_parameters.high_freq_factor", kHigh.fallback, "llama3, which needs it",
      0);
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
  if (!part.share.empty())
    keys.push_back({{.key = kShareKey,
                     .type = Type::real,
                     .fallback = part.share,
                     .note = "the part of each head's columns that is rotated",
                     .min = 0,
                     .max = 1,
                     .nullable = true},
                    forbidden});
  if (!part.local_theta.empty())
    keys.push_back({real_key("dstrain.model.rope_local_base_freq", part.local_theta,
                             "rope_theta of layers with a window", 1),
                    forbidden});
  return keys;
}

std::vector<KeySpec> rotary_fields(const RotaryPart& part) {
  std::vector<KeySpec> fields{
      {.key = kTodaySection, .type = Type::section, .rule = &kRotarySections, .nullable = true},
      {.key = kOlderSection,
       .type = Type::section,
       .note = "an old name of rope_parameters",
       .rule = &kRotarySections,
       .nullable = true},
      {.key = part.outer_theta,
       .type = Type::real,
       .note = "an old place of rope_parameters.rope_theta",
       .rule = &kOuterTheta,
       .min = 1,
       .max = kMostOfAReal},
      {.key = "dstrain.model.original_max_position_embeddings",
       .type = Type::any,
       .rule = &kOuterPositions},
      fixed("dstrain.model.use_mrope", Type::boolean, "false", "positions of several dimensions"),
      fixed("dstrain.model.rope_interleaved", Type::boolean, "false",
            "pairs of neighbouring columns"),
  };
  if (!part.share.empty()) {
    fields.push_back({.key = part.outer_share,
                      .type = Type::real,
                      .note = "an old place of rope_parameters.partial_rotary_factor",
                      .rule = &kOuterShare,
                      .min = 0,
                      .max = 1});
  } else {
    constexpr std::string_view note = "positions in a part of each head";
    fields.push_back(fixed(kShareKey, Type::real, "1.0", note));
    fields.push_back(fixed("dstrain.model.partial_rotary_factor", Type::real, "1.0", note));
  }
  for (const std::string_view name : kOldRotaryNames)
    fields.push_back({.key = name, .type = Type::any, .rule = &kOldRotary});
  if (part.local_theta.empty()) return fields;
  for (const std::string_view name : {"dstrain.model.rope_parameters.full_attention",
                                      "dstrain.model.rope_parameters.sliding_attention"})
    fields.push_back({.key = name, .type = Type::section, .nullable = true});
  for (const std::string_view name : kWholeNames)
    fields.push_back({.key = name, .type = Type::any, .rule = &kOldRotary});
  for (const std::string_view name : {"dstrain.model.rope_parameters.sliding_attention.rope_type",
                                      "dstrain.model.rope_parameters.sliding_attention.type"})
    fields.push_back(fixed(name, Type::string, kUsualRotation,
                           "other positions than plain ones in layers with a window"));
  fields.push_back({.key = "dstrain.model.rope_parameters.sliding_attention.rope_theta",
                    .type = Type::real,
                    .note = "today's place of rope_local_base_freq",
                    .rule = &kLocalThetaPlaces,
                    .min = 1,
                    .max = kMostOfAReal});
  return fields;
}

namespace {

// Returns 0 where all columns of a head are rotated, else how many.
int64_t rotated_columns(const ModelConfig& c, int64_t head_size) {
  const std::string_view name = kShareKey.substr(kModelSection.size());
  if (std::ranges::find(c.family().keys, name, &ModelKey::name) == c.family().keys.end()) return 0;
  const auto columns = static_cast<int64_t>(static_cast<double>(head_size) * c.real(name));
  return columns == head_size ? 0 : columns;
}

}  // namespace

std::optional<KeyProblem> rotary_key_problem(const ModelConfig& c, int64_t head_size) {
  const RotaryAttrs attrs = rotary_of(c, head_size);
  std::vector<std::string_view> missing;
  const auto needs = [&missing](std::string_view name, double value) {
    if (value == 0) missing.push_back(name);
  };
  if (attrs.kind != RotaryKind::plain) needs("factor", attrs.factor);
  if (attrs.kind == RotaryKind::llama3) {
    needs("low_freq_factor", attrs.low_freq_factor);
    needs("high_freq_factor", attrs.high_freq_factor);
  }
  if (!missing.empty())
    return KeyProblem{
        {"dstrain.model.rope_scaling.rope_type", "dstrain.model.rope_scaling.type",
         "dstrain.model.rope_parameters.rope_type", kOlderSection, kTodaySection},
        fmt::format("\"{}\" needs {}, above 0, in the same section",
                    c.text("rope_parameters.rope_type"), fmt::join(missing, " and "))};
  if (const std::string_view problem = rotary_problem(attrs); !problem.empty())
    return KeyProblem{{kShareKey, kTodaySection, kOlderSection, "dstrain.model.head_dim"},
                      fmt::format("the position embedding: {}", problem)};
  return std::nullopt;
}

RotaryAttrs rotary_of(const ModelConfig& c, int64_t head_size) {
  constexpr std::array<std::pair<std::string_view, RotaryKind>, 4> kinds{
      {{"linear", RotaryKind::linear},
       {"dynamic", RotaryKind::dynamic},
       {"llama3", RotaryKind::llama3},
       {"yarn", RotaryKind::yarn}}};
  const auto real = [&c](std::string_view name) {
    return c.real(fmt::format("rope_parameters.{}", name));
  };
  RotaryAttrs attrs{.head_size = head_size,
                    .rotated = rotated_columns(c, head_size),
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

RotaryAttrs local_rotary_of(const ModelConfig& c, int64_t head_size) {
  return {.head_size = head_size, .theta = c.real(kLocalTheta)};
}

}  // namespace dstrain::models
