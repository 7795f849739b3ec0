#include "runtime/config/keys/table/coerce.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/architectures.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

using Kind = Node::Kind;

// The keys that name the family of a model.
constexpr std::string_view kModelTypes = "dstrain.model.type|dstrain.model.model_type";

std::string found(const Node& node) {
  switch (node.kind) {
    case Kind::object:
      return "a section { }";
    case Kind::array:
      return node.items.size() > 4 ? "a list" : printable(json_text(node));
    default:
      return printable(json_text(node));
  }
}

std::string number_text(const KeySpec& spec, double value) {
  return spec.type == Type::integer || spec.type == Type::count_or_choice ||
                 spec.type == Type::bytes
             ? fmt::format("{:.0f}", value)
             : json_text(value);
}

// A limit that no sensible value reaches is named only if a value exceeds it.
std::string range_text(const KeySpec& spec, bool whole) {
  const bool low = std::isfinite(spec.min) && (whole || spec.min > -kMaxCount);
  const bool bounded = std::isfinite(spec.max);
  const bool high = bounded ? whole || spec.max < kMaxCount : whole && spec.type == Type::integer;
  if (low && high)
    return fmt::format(" from {} {} {}", number_text(spec, spec.min), spec.open ? "to below" : "to",
                       bounded ? number_text(spec, spec.max) : std::to_string(INT64_MAX));
  if (low)
    return fmt::format(" {} {}", spec.open ? "above" : "of at least", number_text(spec, spec.min));
  return "";
}

// A limit that is not allowed itself must not be reached in fp32 either, in which a step computes.
bool in_range(const KeySpec& spec, double value) {
  const bool low_open = spec.open && !std::isfinite(spec.max);
  const bool high_open = spec.open && std::isfinite(spec.max);
  return (low_open ? value > spec.min : value >= spec.min) &&
         (high_open ? static_cast<float>(value) < static_cast<float>(spec.max) : value <= spec.max);
}

bool number_fits(const KeySpec& spec, const Node& node) {
  if (spec.type == Type::integer || spec.type == Type::count_or_choice) {
    const auto v = to_integer(node, takes_quoted(spec.key));
    return v && in_range(spec, static_cast<double>(*v));
  }
  const auto v = to_real(node, takes_quoted(spec.key));
  return v && in_range(spec, *v);
}

bool takes_any_case(const KeySpec& spec) {
  return lower_case(spec.choices) == spec.choices;
}

bool is_choice(const KeySpec& spec, const Node& node) {
  return node.is(Kind::string) &&
         one_of(spec.choices, takes_any_case(spec) ? lower_case(node.text) : node.text);
}

bool all_are(const Node& node, Kind kind) {
  return node.is(Kind::array) && std::all_of(node.items.begin(), node.items.end(),
                                             [&](const Node& item) { return item.is(kind); });
}

bool fits(const KeySpec& spec, const Node& node) {
  switch (spec.type) {
    case Type::boolean:
      return to_boolean(node, takes_quoted(spec.key)).has_value();
    case Type::integer:
    case Type::real:
      return number_fits(spec, node);
    case Type::rate:
      return number_fits(spec,
                         node.is(Kind::array) && node.items.size() == 1 ? node.items[0] : node);
    case Type::betas:
      return node.is(Kind::array) && node.items.size() == 2 && number_fits(spec, node.items[0]) &&
             number_fits(spec, node.items[1]);
    case Type::string:
      return node.is(Kind::string);
    case Type::choice:
      return is_choice(spec, node);
    case Type::count_or_choice:
      return is_choice(spec, node) || number_fits(spec, node);
    case Type::bytes: {
      const auto bytes = to_bytes(node);
      return bytes && in_range(spec, static_cast<double>(*bytes));
    }
    case Type::strings:
      return all_are(node, Kind::string);
    case Type::integers:
      return all_are(node, Kind::integer);
    case Type::real_or_reals:
      return node.is(Kind::array)
                 ? !node.items.empty() &&
                       std::ranges::all_of(
                           node.items, [&](const Node& item) { return number_fits(spec, item); })
                 : number_fits(spec, node);
    case Type::string_or_integers:
      return node.is(Kind::string) || all_are(node, Kind::integer);
    case Type::string_or_strings:
      return node.is(Kind::string) || (all_are(node, Kind::string) && !node.items.empty());
    case Type::section:
    case Type::opaque:
      return node.is(Kind::object);
    case Type::any:
      return true;
  }
  return false;
}

// Returns the number or boolean that a string names, or the node itself.
Node without_quotes(const Node& node) {
  const std::string lower = lower_case(node.text);
  if (!node.is(Kind::string)) return node;
  if (!is_json_number(node.text) && lower != "true" && lower != "false") return node;
  try {
    return read_value(lower, node.place.source);
  } catch (const SyntaxError&) {
    return node;  // outside the range of a double
  }
}

std::string hint(const KeySpec& spec, const Node& node) {
  if (node.is(Kind::null)) return ": remove the key for the default";
  if (const auto value = unquoted(spec, node))
    // A shell has taken the quotes, or there were none.
    return fmt::format(": write {}{}", value->text.empty() ? json_text(*value) : value->text,
                       node.place.source == Source::set ? "" : " without quotes");
  if (!node.is(Kind::string)) return "";
  if (one_of(kModelTypes, spec.key))
    return hint_on_architecture(node.text, split_words(spec.choices));
  if (spec.type == Type::choice || spec.type == Type::count_or_choice) {
    const std::string near = nearest(node.text, split_words(spec.choices));
    if (!near.empty()) return fmt::format(" (did you mean \"{}\"?)", near);
  }
  return "";
}

}  // namespace

std::optional<Node> unquoted(const KeySpec& spec, const Node& node) {
  Node value = without_quotes(node);
  bool quoted = !value.is(node.kind);
  for (Node& item : value.items) {
    const Kind before = item.kind;
    item = without_quotes(item);
    quoted |= item.kind != before;
  }
  if (!quoted || !fits(spec, value)) return std::nullopt;
  return value;
}

std::optional<bool> to_boolean(const Node& node, bool quoted) {
  if (node.is(Kind::boolean)) return node.boolean;
  if (!quoted) return std::nullopt;
  if ((node.is(Kind::integer) || node.is(Kind::real)) && (node.real == 0 || node.real == 1))
    return node.real == 1;
  const std::string lower = lower_case(node.text);
  if (node.is(Kind::string) && one_of("true|1|yes|on|y|t", lower)) return true;
  if (node.is(Kind::string) && one_of("false|0|no|off|n|f", lower)) return false;
  return std::nullopt;
}

std::optional<int64_t> to_integer(const Node& node, bool quoted) {
  if (node.is(Kind::integer)) return node.integer;
  if (node.is(Kind::real) && std::abs(node.real) < 0x1p63 && node.real == std::trunc(node.real))
    return static_cast<int64_t>(node.real);
  if (quoted && node.is(Kind::boolean)) return node.boolean ? 1 : 0;
  int64_t value = 0;
  const char* end = node.text.data() + node.text.size();
  if (quoted && node.is(Kind::string) && is_json_number(node.text)) {
    const auto [stop, ec] = std::from_chars(node.text.data(), end, value);
    if (ec == std::errc{} && stop == end) return value;
  }
  return std::nullopt;
}

std::optional<double> to_real(const Node& node, bool quoted) {
  if (node.is(Kind::integer) || node.is(Kind::real)) return node.real;
  if (quoted && node.is(Kind::string) && is_json_number(node.text)) {
    double value = 0;
    const auto [stop, ec] =
        std::from_chars(node.text.data(), node.text.data() + node.text.size(), value);
    if (ec == std::errc{}) return value;
  }
  return std::nullopt;
}

std::optional<int64_t> to_bytes(const Node& node) {
  if (node.is(Kind::string)) return parse_bytes(node.text);
  return to_integer(node, false);
}

bool takes_quoted(std::string_view key) {
  return one_of(
      "zero_optimization|fp16|bf16|bfloat16|tensorboard|wandb|csv_monitor|comet|comms_logger|"
      "tensor_parallel|hybrid_engine|compile|timers|weight_quantization",
      key.substr(0, key.find('.')));
}

Node in_table_case(const KeySpec& spec, Node node) {
  if (spec.type == Type::choice && takes_any_case(spec)) node.text = lower_case(node.text);
  return node;
}

std::string expectation(const KeySpec& spec, bool whole) {
  switch (spec.type) {
    case Type::boolean:
      return "true or false";
    case Type::integer:
      return "an integer" + range_text(spec, whole);
    case Type::real:
    case Type::rate:
      return "a number" + range_text(spec, whole);
    case Type::betas:
      return "a list of two numbers" + range_text(spec, whole);
    case Type::string:
      return "a string";
    case Type::choice:
      return fmt::format("one of \"{}\"", fmt::join(split_words(spec.choices), "\", \""));
    case Type::count_or_choice:
      return fmt::format("\"{}\" or an integer{}", fmt::join(split_words(spec.choices), "\", \""),
                         range_text(spec, whole));
    case Type::bytes:
      return fmt::format("a number of bytes{} or a text such as \"2GB\"", range_text(spec, whole));
    case Type::strings:
      return "a list of strings";
    case Type::integers:
      return "a list of integers";
    case Type::real_or_reals:
      return fmt::format("a number{0}, or a list of numbers{0}", range_text(spec, whole));
    case Type::string_or_integers:
      return "a string or a list of integers";
    case Type::string_or_strings:
      return "a string or a list of strings";
    case Type::section:
    case Type::opaque:
      return "a section { }";
    case Type::any:
      return "any value";
  }
  return "";
}

std::string type_error(const KeySpec& spec, const Node& node) {
  if (node.is(Kind::null) &&
      (spec.nullable ||
       (spec.fallback.empty() && spec.type != Type::section && spec.type != Type::opaque)))
    return "";
  if (fits(spec, node)) return "";
  const double value = to_real(node).value_or(0);
  const bool beyond = value > spec.max || (spec.type == Type::integer && value >= 0x1p63) ||
                      (spec.min <= -kMaxCount && value < spec.min);
  return fmt::format("expected {}, found {}{}", expectation(spec, beyond), found(node),
                     hint(spec, node));
}

}  // namespace dstrain
