#include "runtime/config/solve/values.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

Node node_of(double value) {
  Node node;
  node.kind = Node::Kind::real;
  node.real = value;
  return node;
}

Node node_of(bool value) {
  Node node;
  node.kind = Node::Kind::boolean;
  node.boolean = value;
  return node;
}

Node node_of(int64_t value) {
  Node node;
  node.kind = Node::Kind::integer;
  node.integer = value;
  node.real = static_cast<double>(value);
  return node;
}

Node node_of(const std::string& value) {
  Node node;
  node.kind = Node::Kind::string;
  node.text = value;
  return node;
}

}  // namespace

const Member* Values::given(std::string_view key) const {
  const Member* member = find(root_, key);
  const KeySpec* spec = find_key(facts_, key);
  if (!member || !spec || member->value.is(Node::Kind::null)) return nullptr;
  if (member->value.is_auto() && !one_of(spec->choices, "auto")) return nullptr;
  return type_error(*spec, member->value).empty() ? member : nullptr;
}

bool Values::is_auto(std::string_view key) const {
  const Member* member = find(root_, key);
  return member && member->value.is_auto();
}

std::string Values::origin_of(std::string_view key) const {
  const Member* member = given(key);
  check(member, "{} is not given", key);
  return where(names_, member->place, key);
}

void Values::record(std::string_view key, std::string value, std::string origin) {
  const auto known = std::ranges::find(settings_, key, &Setting::key);
  if (known != settings_.end())
    *known = {std::string(key), std::move(value), std::move(origin)};
  else
    settings_.push_back({std::string(key), std::move(value), std::move(origin)});
}

Node Values::by_table(std::string_view key, std::string& why) const {
  const KeySpec* spec = find_key(facts_, key);
  check(spec && !spec->fallback.empty(), "the key table has no default of {}", key);
  const bool automatic = is_auto(key) && !spec->automatic.empty();
  if (automatic) why = kHuggingFace;
  return read_value(automatic ? spec->automatic : spec->fallback, Source::file);
}

double Values::automatic(std::string_view key) const {
  const KeySpec* spec = find_key(facts_, key);
  check(spec && !spec->automatic.empty(), "the key table does not say what \"auto\" is for {}",
        key);
  return read_value(spec->automatic, Source::file).real;
}

Node Values::resolve(std::string_view key, const Node& derived, const std::string& why) {
  if (const Member* member = given(key)) {
    const KeySpec* spec = find_key(facts_, key);
    Node node = in_table_case(*spec, member->value);
    // The recorded value is the converted one: 500000000 for 5e8, true for "true".
    if (spec->type == Type::boolean) {
      node.boolean = *to_boolean(node);
      node.kind = Node::Kind::boolean;
    } else if (spec->type == Type::integer) {
      node = node_of(*to_integer(node));
    } else if (spec->type == Type::bytes) {
      node = node_of(*to_bytes(node));
    } else if (spec->type == Type::rate && node.is(Node::Kind::array)) {
      node = Node(node.items[0]);
    }
    if (spec->type == Type::real || spec->type == Type::rate) node = node_of(*to_real(node));
    record(key, json_text(node), where(names_, member->place, key));
    return node;
  }
  record(key, json_text(derived),
         is_auto(key)  ? fmt::format("auto: {}", why.empty() ? "the default" : why)
         : why.empty() ? "default"
                       : fmt::format("derived: {}", why));
  return derived;
}

Node Values::resolve(std::string_view key) {
  std::string why;
  const Node value = by_table(key, why);
  return resolve(key, value, why);
}

double Values::real(std::string_view key) {
  return resolve(key).real;
}

int64_t Values::integer(std::string_view key) {
  return resolve(key).integer;
}

bool Values::flag(std::string_view key) {
  return resolve(key).boolean;
}

std::string Values::text(std::string_view key) {
  return resolve(key).text;
}

std::array<double, 2> Values::betas(std::string_view key) {
  const Node node = resolve(key);
  return {*to_real(node.items[0]), *to_real(node.items[1])};
}

std::vector<std::string> Values::texts(std::string_view key) {
  std::vector<std::string> list;
  const Member* member = given(key);
  if (!member) return list;
  if (member->value.is(Node::Kind::string)) list.push_back(member->value.text);
  for (const Node& item : member->value.items) list.push_back(item.text);
  record(key, json_text(member->value), origin_of(key));
  return list;
}

std::vector<double> Values::reals(std::string_view key) {
  const Node value = resolve(key);
  std::vector<double> list;
  if (!value.is(Node::Kind::array)) return {value.real};
  for (const Node& item : value.items) list.push_back(item.real);
  return list;
}

double Values::real(std::string_view key, double derived, std::string_view why) {
  return resolve(key, node_of(derived), std::string(why)).real;
}

int64_t Values::integer(std::string_view key, int64_t derived, std::string_view why) {
  return resolve(key, node_of(derived), std::string(why)).integer;
}

bool Values::flag(std::string_view key, bool derived, std::string_view why) {
  return resolve(key, node_of(derived), std::string(why)).boolean;
}

std::string Values::text(std::string_view key, const std::string& derived, std::string_view why) {
  return resolve(key, node_of(derived), std::string(why)).text;
}

}  // namespace dstrain
