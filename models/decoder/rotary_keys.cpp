#include "models/decoder/rotary_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "models/decoder/keys.h"
#include "models/hugging_face/fields.h"
#include "models/sizes.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/text.h"

namespace dstrain::models {
namespace {

constexpr std::string_view kToday = "rope_parameters", kOlder = "rope_scaling",
                           kTodaySection = "dstrain.model.rope_parameters",
                           kOlderSection = "dstrain.model.rope_scaling", kUsualTheta = "10000.0",
                           kUsualRotation = "\"default\"";

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

// Returns the member of one of the two sections, or null if it says nothing, as transformers read it.
const Member* section_in(const Node& model, std::string_view name) {
  const Member* const section = model.member(name);
  const bool empty =
      !section || !section->value.is(Node::Kind::object) || section->value.members.empty();
  return empty ? nullptr : section;
}

bool is_null(const Member* member) {
  return !member || member->value.is(Node::Kind::null);
}

double number_in(const Node& section, std::string_view name) {
  const Member* const member = section.member(name);
  return member ? to_real(member->value, false).value_or(0) : 0;
}

// Sets a factor that is null to what transformers take for yarn then, if the model says its positions.
void complete_factor(const Node& model, Node& section) {
  const Member* const kind = section.member("rope_type");
  if (!kind || lower_case(kind->value.text) != "yarn") return;
  const double positions = number_in(model, "max_position_embeddings"),
               given = number_in(section, "original_max_position_embeddings"),
               original = given > 0 ? given : positions;
  for (Member& m : section.members)
    if (m.key == "factor" && is_null(&m) && original > 0) {
      m.value.kind = Node::Kind::real;
      m.value.real = positions / original;
    }
}

struct Factor {
  std::string_view name, fallback;
};
constexpr Factor kFactor{"factor", "1.0"}, kLow{"low_freq_factor", "1.0"},
    kHigh{"high_freq_factor", "4.0"};

// Returns the factors of a section's kind that it does not have. transformers have no default of them.
std::vector<Factor> missing_factors(const Node& section) {
  const Member* const named = section.member("rope_type");
  const std::string kind = named ? lower_case(named->value.text) : "default";
  std::vector<Factor> missing;
  const auto need = [&](const Factor& factor) {
    if (is_null(section.member(factor.name))) missing.push_back(factor);
  };
  if (kind != "default") need(kFactor);
  if (kind == "llama3") {
    need(kLow);
    need(kHigh);
  }
  return missing;
}

// Adds a factor that a section lacks.
void add_factor(Node& section, const Factor& factor, std::string_view value) {
  std::erase_if(section.members, [&factor](const Member& m) { return m.key == factor.name; });
  section.members.push_back({std::string(factor.name), section.place,
                             read_value(std::string(value), Source::model_file)});
}

// Returns one of the two sections with the names of the keys, and with what transformers take from elsewhere.
Node completed(const Node& model, Node section) {
  // The oldest files call the kind "type"; some have both names, of which transformers read today's.
  if (section.member("rope_type"))
    std::erase_if(section.members, [](const Member& m) { return m.key == "type"; });
  for (Member& m : section.members)
    if (m.key == "type") m.key = "rope_type";
  std::erase_if(section.members,
                [](const Member& m) { return m.key == "rope_theta" && is_null(&m); });
  if (const Member* const theta = model.member("rope_theta");
      !is_null(theta) && !section.member("rope_theta"))
    section.members.push_back(*theta);
  complete_factor(model, section);
  // No legal value: the keys' defaults are those of other kinds.
  for (const Factor& factor : missing_factors(section)) add_factor(section, factor, "0");
  return section;
}

// Returns a field of a section, with transformers' default of those that every section has.
Node field_of(const Node& section, std::string_view name) {
  const Member* const member = section.member(name);
  if (!is_null(member)) return member->value;
  if (name == "rope_theta") return read_value(kUsualTheta, Source::model_file);
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
      const Member* const today = model ? section_in(model->value, kToday) : nullptr;
      const Member* const older = model ? section_in(model->value, kOlder) : nullptr;
      if (!today || !older) return legal;
      const std::string field = difference(today->value, completed(model->value, older->value));
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

std::vector<ModelKey> rotary_keys() {
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
  add("dstrain.model.rope_parameters.rope_theta", kUsualTheta, "", 1);
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
  return keys;
}

std::vector<KeySpec> rotary_fields() {
  std::vector<KeySpec> fields{
      {.key = kTodaySection, .type = Type::section, .rule = &kRotarySections, .nullable = true},
      {.key = kOlderSection,
       .type = Type::section,
       .note = "an old name of rope_parameters",
       .rule = &kRotarySections,
       .nullable = true},
      {.key = "dstrain.model.rope_theta",
       .type = Type::real,
       .note = "an old place of rope_parameters.rope_theta",
       .rule = &kOuterTheta,
       .min = 1,
       .max = kMostOfAReal},
      fixed("dstrain.model.rope_parameters.partial_rotary_factor", Type::real, "1.0",
            "positions in a part of each head"),
      fixed("dstrain.model.partial_rotary_factor", Type::real, "1.0",
            "positions in a part of each head"),
      {.key = "dstrain.model.original_max_position_embeddings",
       .type = Type::any,
       .rule = &kOuterPositions},
      fixed("dstrain.model.use_mrope", Type::boolean, "false", "positions of several dimensions"),
      fixed("dstrain.model.rope_interleaved", Type::boolean, "false",
            "pairs of neighbouring columns"),
  };
  for (const std::string_view name : kOldRotaryNames)
    fields.push_back({.key = name, .type = Type::any, .rule = &kOldRotary});
  return fields;
}

void normalise_rotary(Node& model) {
  const Member *const today = section_in(model, kToday), *const older = section_in(model, kOlder),
                      *const theta = model.member("rope_theta");
  const Member* const source = today ? today : older;
  if (!source && is_null(theta)) return;
  // What is no section is an error.
  if (const Member* const given = model.member(kToday);
      !is_null(given) && !given->value.is(Node::Kind::object))
    return;
  Node section;
  section.kind = Node::Kind::object;
  if (source) section = source->value;
  section = completed(model, std::move(section));
  section.place = (source ? source : theta)->place;
  put(model, kToday, std::move(section));
}

void restore_rotary(Node& model) {
  for (Member& m : model.members)
    if (m.key == kToday && m.value.is(Node::Kind::object))
      for (const Factor& factor : missing_factors(m.value))
        add_factor(m.value, factor, factor.fallback);
}

std::optional<KeyProblem> rotary_key_problem(const ModelConfig& c) {
  const RotaryAttrs attrs = rotary_of(c);
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
    return KeyProblem{{kTodaySection, kOlderSection, "dstrain.model.head_dim"},
                      fmt::format("the position embedding: {}", problem)};
  return std::nullopt;
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

}  // namespace dstrain::models
