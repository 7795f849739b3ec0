// The filters of templates.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/builtins.h"
#include "runtime/data/chat/jinja/call_arguments.h"
#include "runtime/data/chat/jinja/json_text.h"
#include "runtime/data/chat/jinja/letter_case.h"
#include "runtime/data/chat/jinja/python_text.h"
#include "runtime/data/chat/jinja/text_growth.h"

namespace dstrain::jinja {
namespace {

struct FilterCall {
  Meter& meter;
  const Value& subject;
  std::string_view name;
  const CallArguments& arguments;

  ArgumentReader read(std::initializer_list<std::string_view> names) const {
    return {meter, fmt::format("the filter '{}'", name), arguments, names};
  }
  std::string text() const { return printed(meter, subject); }
  const std::vector<Value>& items() {
    if (!all) all = items_of(meter, subject);
    return all->items;
  }

  std::shared_ptr<const List> all = {};
};

Value trim(FilterCall& call) {
  const ArgumentReader given = call.read({"chars"});
  const std::string text = call.text();
  if (!given.find(0) || given.find(0)->is_none())
    return call.meter.text(stripped(text, Ends::both));
  const std::string_view characters = given.text(0);
  call.meter.step(static_cast<int64_t>(1 + characters.size() * text.size() / 32));
  return call.meter.text(stripped(text, Ends::both, &characters));
}

Value length_of(FilterCall& call) {
  call.read({});
  const Value& value = call.subject;
  if (value.is_undefined()) return int64_t{0};
  if (const std::string* text = value.text()) {
    call.meter.step(1 + std::ssize(*text) / 32);
    return character_count(*text);
  }
  refuse_generator(call.meter, value, "length");
  if (const List* list = value.list()) return std::ssize(list->items);
  if (const Dict* dict = value.dict()) return std::ssize(dict->members());
  call.meter.fail(fmt::format("{} has no length", value.type_name()));
}

Value letters_of(FilterCall& call) {
  call.read({});
  return in_case(call.meter, call.name, call.text());
}

Value titled_text(FilterCall& call) {
  call.read({});
  return titled(call.meter, call.text());
}

Value as_json(FilterCall& call) {
  const ArgumentReader given = call.read({"ensure_ascii", "indent", "separators", "sort_keys"});
  if (given.flag(0, false)) call.meter.fail_unknown("tojson with ensure_ascii");
  JsonStyle style;
  if (given.find(1) && given.find(1)->is_text())
    call.meter.fail_unknown("tojson with an indent that is a text");
  style.indent = given.integer(1, -1);
  style.sort_keys = given.flag(3, false);
  if (given.find(2) && !given.find(2)->is_none()) {
    const List* list = given.find(2)->list();
    if (!list || list->items.size() != 2) call.meter.fail("tojson: separators are two texts");
    style.between = text_in(call.meter, list->items[0], "a separator of tojson");
    style.behind_name = text_in(call.meter, list->items[1], "a separator of tojson");
  } else if (style.indent >= 0) {
    style.between = ",";
  }
  return json_text(call.meter, call.subject, style);
}

// Returns the value of each item's attribute "a.b".
Value attribute_path(Meter& meter, Value value, std::string_view path) {
  while (true) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string name(path.substr(0, dot));
    int64_t index = 0;
    const auto [stop, status] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = status == std::errc() && stop == name.data() + name.size();
    value = item_of(meter, value, number ? Value(index) : Value(name));
    if (dot == path.size()) return value;
    path.remove_prefix(dot + 1);
  }
}

Value joined_items(FilterCall& call) {
  const ArgumentReader given = call.read({"d", "attribute"});
  const std::string between = given.find(0) ? printed(call.meter, *given.find(0)) : "";
  std::string all;
  bool first = true;
  for (const Value& item : call.items()) {
    if (!std::exchange(first, false)) append(call.meter, all, between);
    const std::string part =
        printed(call.meter, given.find(1) ? attribute_path(call.meter, item, given.text(1)) : item);
    append(call.meter, all, part);
  }
  return all;
}

Value at_end(FilterCall& call) {
  call.read({});
  const auto& items = call.items();
  if (items.empty())
    return Value::undefined("the " + std::string(call.name) + " item of an empty sequence");
  return call.name == "first" ? items.front() : items.back();
}

Value otherwise(FilterCall& call) {
  const ArgumentReader given = call.read({"default_value", "boolean"});
  const bool replaces =
      call.subject.is_undefined() || (given.flag(1, false) && !holds(call.meter, call.subject));
  if (!replaces) return call.subject;
  return given.find(0) ? *given.find(0) : Value("");
}

Value listed(FilterCall& call) {
  call.read({});
  call.meter.items(call.items().size());
  return call.meter.list(call.items());
}

Value as_text(FilterCall& call) {
  call.read({});
  return call.text();
}

// Returns the number that the text is, but for white space around it; nothing if it is none.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  text = stripped(text, Ends::both);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  Number number = 0;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

Value as_integer(FilterCall& call) {
  const ArgumentReader given = call.read({"default"});
  if (const auto number = call.subject.integer()) return *number;
  std::optional<double> real = call.subject.real();
  if (const std::string* text = call.subject.text()) {
    if (const auto number = number_in<int64_t>(*text)) return *number;
    if (text->find('_') != text->npos) call.meter.fail_unknown("the filter 'int' of digits with _");
    real = number_in<double>(*text);
  }
  if (!real || !std::isfinite(*real)) return given.integer(0, 0);
  if (std::abs(*real) >= 9e18) call.meter.fail("an integer is larger than 64 bits");
  return static_cast<int64_t>(*real);
}

Value as_real(FilterCall& call) {
  call.read({});
  if (const auto number = call.subject.real()) return *number;
  call.meter.fail_unknown(fmt::format("the filter 'float' of {}", call.subject.type_name()));
}

Value absolute(FilterCall& call) {
  call.read({});
  if (const auto number = call.subject.integer();
      number && *number != std::numeric_limits<int64_t>::min())
    return std::abs(*number);
  if (const auto number = call.subject.real()) return std::abs(*number);
  call.meter.fail(fmt::format("abs of {}", call.subject.type_name()));
}

Value replace_in(FilterCall& call) {
  const ArgumentReader given = call.read({"old", "new", "count"});
  return replaced(call.meter, call.text(), printed(call.meter, given.at(0)),
                  printed(call.meter, given.at(1)), given.integer(2, -1));
}

Value members_of(FilterCall& call) {
  call.read({});
  if (call.subject.is_undefined()) return call.meter.list({});
  if (!call.subject.dict()) call.meter.fail(fmt::format("items of {}", call.subject.type_name()));
  return call_method(call.meter, call.subject, "items", {});
}

Value sorted_members_of(FilterCall& call) {
  call.read({});
  if (!call.subject.dict())
    call.meter.fail(fmt::format("dictsort of {}", call.subject.type_name()));
  call.meter.items(call.subject.dict()->members().size());
  std::vector<Value> pairs = call_method(call.meter, call.subject, "items", {}).list()->items;
  const auto key = [](const Value& pair) {
    std::string name = *pair.list()->items[0].text();
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
    return name;
  };
  for (const Value& pair : pairs)
    if (!is_ascii(*pair.list()->items[0].text()))
      call.meter.fail_unknown("dictsort of names that are not ASCII");
  std::ranges::stable_sort(pairs, {}, key);
  return call.meter.list(std::move(pairs));
}

// selectattr, rejectattr, select, reject.
Value chosen(FilterCall& call) {
  const bool by_attribute = call.name.ends_with("attr"), keeps = call.name.starts_with("select");
  CallArguments arguments = call.arguments;
  const size_t own = by_attribute ? 1 : 0;
  if (!arguments.named.empty() || arguments.given.size() < own)
    call.meter.fail(fmt::format(
        "the filter '{}' needs the name of an attribute, and no named arguments", call.name));
  std::string attribute, test;
  if (by_attribute) attribute = text_in(call.meter, arguments.given[0], "the name of an attribute");
  if (arguments.given.size() > own)
    test = text_in(call.meter, arguments.given[own], "the name of a test");
  if (!test.empty() && !has_test(test)) call.meter.fail_unknown(fmt::format("the test '{}'", test));
  const size_t used = std::min(arguments.given.size(), own + 1);
  arguments.given.erase(arguments.given.begin(),
                        arguments.given.begin() + static_cast<std::ptrdiff_t>(used));
  std::vector<Value> kept;
  for (const Value& item : call.items()) {
    const Value value = by_attribute ? attribute_path(call.meter, item, attribute) : item;
    const bool passes =
        test.empty() ? holds(call.meter, value) : apply_test(call.meter, test, value, arguments);
    if (passes != keeps) continue;
    call.meter.items(1);
    kept.push_back(item);
  }
  return call.meter.list(std::move(kept), false, true);
}

Value mapped(FilterCall& call) {
  const Level level(call.meter);
  std::vector<Value> results;
  if (call.arguments.given.empty()) {
    const ArgumentReader given = call.read({"attribute", "default"});
    const std::string& attribute = given.text(0);
    for (const Value& item : call.items()) {
      Value value = attribute_path(call.meter, item, attribute);
      if (value.is_undefined() && given.find(1)) value = *given.find(1);
      call.meter.items(1);
      results.push_back(std::move(value));
    }
    return call.meter.list(std::move(results), false, true);
  }
  CallArguments arguments = call.arguments;
  const std::string filter = text_in(call.meter, arguments.given[0], "the name of a filter");
  if (!has_filter(filter)) call.meter.fail_unknown(fmt::format("the filter '{}'", filter));
  arguments.given.erase(arguments.given.begin());
  call.meter.items(call.items().size());
  for (const Value& item : call.items())
    results.push_back(apply_filter(call.meter, filter, item, arguments));
  return call.meter.list(std::move(results), false, true);
}

Value unique(FilterCall& call) {
  const ArgumentReader given = call.read({"case_sensitive", "attribute"});
  const auto key_of = [&](const Value& item) {
    Value key = given.find(1) ? attribute_path(call.meter, item, given.text(1)) : item;
    if (!key.is_text() || given.flag(0, false)) return key;
    return in_case(call.meter, "lower", *key.text());
  };
  std::vector<Value> kept, keys;
  for (const Value& item : call.items()) {
    const Value key = key_of(item);
    const bool there = std::ranges::any_of(keys, [&](const Value& other) {
      call.meter.step(std::min(other.weight(), key.weight()));
      return equal(key, other);
    });
    if (there) continue;
    call.meter.items(2);
    keys.push_back(key);
    kept.push_back(item);
  }
  return call.meter.list(std::move(kept), false, true);
}

Value reversed(FilterCall& call) {
  call.read({});
  if (const std::string* text = call.subject.text())
    return slice_of(call.meter, *text, {}, {}, int64_t{-1});
  call.meter.items(call.items().size());
  std::vector<Value> items = call.items();
  std::ranges::reverse(items);
  return call.meter.list(std::move(items));
}

Value indented(FilterCall& call) {
  const ArgumentReader given = call.read({"width", "first", "blank"});
  const std::string space =
      given.find(0) && given.find(0)->is_text()
          ? given.text(0)
          : std::string(static_cast<size_t>(std::clamp<int64_t>(given.integer(0, 4), 0, 1000)),
                        ' ');
  std::string text = call.text();
  text += '\n';
  call.meter.bytes(most_lines(text) * sizeof(std::string_view));
  std::string all;
  bool first = true;
  std::vector<std::string_view> lines = lines_of(text);
  if (given.flag(2, false)) call.meter.fail_unknown("indent with blank lines");
  for (const std::string_view line : lines) {
    if (!first) append(call.meter, all, "\n");
    if (!line.empty() && (!first || given.flag(1, false))) append(call.meter, all, space);
    append(call.meter, all, line);
    first = false;
  }
  return all;
}

Value unchanged(FilterCall& call) {
  call.read({});
  return call.subject;
}

using Filter = Value (*)(FilterCall&);
using NamedFilter = std::pair<std::string_view, Filter>;

constexpr std::array<NamedFilter, 30> kFilters = {{{"trim", trim},
                                                   {"length", length_of},
                                                   {"count", length_of},
                                                   {"upper", letters_of},
                                                   {"lower", letters_of},
                                                   {"title", titled_text},
                                                   {"capitalize", letters_of},
                                                   {"tojson", as_json},
                                                   {"join", joined_items},
                                                   {"first", at_end},
                                                   {"last", at_end},
                                                   {"default", otherwise},
                                                   {"d", otherwise},
                                                   {"list", listed},
                                                   {"string", as_text},
                                                   {"int", as_integer},
                                                   {"float", as_real},
                                                   {"abs", absolute},
                                                   {"replace", replace_in},
                                                   {"items", members_of},
                                                   {"dictsort", sorted_members_of},
                                                   {"selectattr", chosen},
                                                   {"rejectattr", chosen},
                                                   {"select", chosen},
                                                   {"reject", chosen},
                                                   {"map", mapped},
                                                   {"unique", unique},
                                                   {"reverse", reversed},
                                                   {"indent", indented},
                                                   {"safe", unchanged}}};

Filter find_filter(std::string_view name) {
  const auto at = std::ranges::find(kFilters, name, &NamedFilter::first);
  return at == kFilters.end() ? nullptr : at->second;
}

}  // namespace

bool has_filter(std::string_view name) {
  return find_filter(name) != nullptr;
}

Value apply_filter(Meter& meter, std::string_view name, const Value& subject,
                   const CallArguments& arguments) {
  const Filter filter = find_filter(name);
  if (!filter) meter.fail_unknown(fmt::format("the filter '{}'", name));
  FilterCall call{meter, subject, name, arguments};
  return filter(call);
}

}  // namespace dstrain::jinja
