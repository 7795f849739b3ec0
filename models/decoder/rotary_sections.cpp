#include "models/decoder/rotary_sections.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/text.h"

namespace dstrain::models {
namespace {

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

// Adds the factors that a section lacks and transformers have no default of.
void add_factors(Node& section) {
  for (const Factor& factor : missing_factors(section))
    add_factor(section, factor, factor.fallback);
}

// Returns whether rope_parameters has a section for either kind of layers.
bool has_sections(const Node& parameters) {
  return parameters.member(kWhole) || parameters.member(kSliding);
}

// Brings sections for either kind of layers to the form of the keys. What stands beside them has been set later, but for the
// old place of the theta of layers with a window, which is an error if it says otherwise.
void join_sections(Node& model) {
  const Member* const parameters = section_in(model, kRotarySection);
  if (!parameters || !has_sections(parameters->value)) return;
  Node joined;
  joined.kind = Node::Kind::object;
  joined.place = parameters->value.place;
  if (const Member* const whole = section_in(parameters->value, kWhole)) joined = whole->value;
  for (const Member& m : parameters->value.members)
    if (m.key != kWhole && m.key != kSliding) put(joined, m.key, m.value);
  const Member* const sliding = section_in(parameters->value, kSliding);
  const Member* const theta = sliding ? sliding->value.member("rope_theta") : nullptr;
  const Node local = is_null(theta) ? Node{} : theta->value;
  put(model, kRotarySection, std::move(joined));
  if (!local.is(Node::Kind::null)) usual_member(model, kLocalTheta, local);
}

// The other way round. A model without rope_parameters has older fields, which transformers read, or what they take without.
void split_sections(Node& model, const RotaryPart& part) {
  const Member* const parameters = section_in(model, kRotarySection);
  const Member* const outer = model.member(kLocalTheta);
  const auto is_split = [](const Member& m) { return m.key == kWhole || m.key == kSliding; };
  if (!parameters || (is_null(outer) && std::ranges::all_of(parameters->value.members, is_split)))
    return;
  Node whole, sliding, both;
  whole.kind = sliding.kind = both.kind = Node::Kind::object;
  if (const Member* const own = section_in(parameters->value, kWhole)) whole = own->value;
  if (const Member* const own = section_in(parameters->value, kSliding)) sliding = own->value;
  for (const Member& m : parameters->value.members)
    if (!is_split(m)) put(whole, m.key, m.value);
  const auto usual = [](Node& section, std::string_view name, std::string_view value) {
    usual_member(section, name, read_value(std::string(value), Source::model_file));
  };
  if (!whole.member("type")) usual(whole, "rope_type", kUsualRotation);
  if (!sliding.member("type")) usual(sliding, "rope_type", kUsualRotation);
  if (!is_null(outer)) put(sliding, "rope_theta", outer->value);
  usual(sliding, "rope_theta", part.local_theta);
  usual(whole, "rope_theta", part.theta);
  put(both, kWhole, std::move(whole));
  put(both, kSliding, std::move(sliding));
  std::erase_if(model.members, [](const Member& m) { return m.key == kLocalTheta; });
  put(model, kRotarySection, std::move(both));
}

}  // namespace

const Member* section_in(const Node& model, std::string_view name) {
  const Member* const section = model.member(name);
  const bool empty =
      !section || !section->value.is(Node::Kind::object) || section->value.members.empty();
  return empty ? nullptr : section;
}

bool is_null(const Member* member) {
  return !member || member->value.is(Node::Kind::null);
}

void usual_member(Node& section, std::string_view name, const Node& value) {
  if (is_null(section.member(name))) put(section, name, value);
}

Node completed(const Node& model, Node section) {
  // The oldest files call the kind "type"; some have both names, of which transformers read today's.
  if (section.member("rope_type"))
    std::erase_if(section.members, [](const Member& m) { return m.key == "type"; });
  for (Member& m : section.members)
    if (m.key == "type") m.key = "rope_type";
  std::erase_if(section.members,
                [](const Member& m) { return m.key == "rope_theta" && is_null(&m); });
  complete_factor(model, section);
  // No legal value: the keys' defaults are those of other kinds.
  for (const Factor& factor : missing_factors(section)) add_factor(section, factor, "0");
  return section;
}

void normalise_rotary(Node& model, const RotaryPart& part) {
  if (!part.local_theta.empty()) join_sections(model);
  const Member *const today = section_in(model, kRotarySection), *const older = section_in(
                                                                     model, kOldRotarySection);
  const auto outer = [&model](std::string_view key) {
    return key.empty() ? nullptr : model.member(key.substr(kModelSection.size()));
  };
  const Member *const theta = outer(part.outer_theta), *const share = outer(part.outer_share);
  const Member* const source = today ? today : older;
  if (!source && is_null(theta) && is_null(share)) return;
  // What is no section is an error.
  if (const Member* const given = model.member(kRotarySection);
      !is_null(given) && !given->value.is(Node::Kind::object))
    return;
  Node section;
  section.kind = Node::Kind::object;
  if (source) section = source->value;
  section = completed(model, std::move(section));
  if (!is_null(theta)) usual_member(section, "rope_theta", theta->value);
  if (!is_null(share)) usual_member(section, "partial_rotary_factor", share->value);
  section.place = (source ? source : is_null(theta) ? share : theta)->place;
  put(model, kRotarySection, std::move(section));
}

void restore_rotary(Node& model, const RotaryPart& part) {
  if (!part.local_theta.empty()) split_sections(model, part);
  for (Member& m : model.members) {
    if (m.key != kRotarySection || !m.value.is(Node::Kind::object)) continue;
    const bool nested = has_sections(m.value);
    for (Member& inner : m.value.members)
      if (nested && inner.key == kWhole && inner.value.is(Node::Kind::object))
        add_factors(inner.value);
    if (!nested) add_factors(m.value);
  }
}

}  // namespace dstrain::models
