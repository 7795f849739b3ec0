// Methods of texts, dicts, lists and loops.
#include <algorithm>
#include <array>
#include <functional>

#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/builtins.h"
#include "runtime/data/chat/jinja/call_arguments.h"
#include "runtime/data/chat/jinja/letter_case.h"
#include "runtime/data/chat/jinja/python_text.h"
#include "runtime/data/chat/jinja/text_growth.h"

namespace dstrain::jinja {
namespace {

using Strings = std::vector<Value>;

struct MethodCall {
  Meter& meter;
  const Value& self;
  std::string_view name;
  const CallArguments& arguments;

  const std::string& text() const { return *self.text(); }
  ArgumentReader read(std::initializer_list<std::string_view> names) const {
    return {meter, fmt::format("the method '{}'", name), arguments, names};
  }
};

Value strip(const MethodCall& call) {
  const ArgumentReader given = call.read({"chars"});
  const Ends ends = call.name == "strip"    ? Ends::both
                    : call.name == "lstrip" ? Ends::left
                                            : Ends::right;
  if (!given.find(0) || given.find(0)->is_none())
    return call.meter.text(stripped(call.text(), ends));
  const std::string_view characters = given.text(0);
  call.meter.step(static_cast<int64_t>(1 + characters.size() * call.text().size() / 32));
  return call.meter.text(stripped(call.text(), ends, &characters));
}

Strings split_at_space(Meter& meter, const std::string& text, int64_t most) {
  Strings parts;
  std::string_view left = stripped(text, Ends::left);
  while (!left.empty()) {
    const size_t end = most >= 0 && std::ssize(parts) == most ? left.size() : first_space(left);
    meter.texts(1);
    parts.emplace_back(left.substr(0, end));
    left = stripped(left.substr(end), Ends::left);
  }
  return parts;
}

Value split(const MethodCall& call) {
  const ArgumentReader given = call.read({"sep", "maxsplit"});
  const int64_t most = given.integer(1, -1);
  const bool from_right = call.name == "rsplit";
  if (!given.find(0) || given.find(0)->is_none()) {
    if (from_right && most >= 0) call.meter.fail_unknown("rsplit() at white space with a limit");
    call.meter.step(std::ssize(call.text()));
    call.meter.bytes(call.text().size());
    return call.meter.list(split_at_space(call.meter, call.text(), most));
  }
  const std::string& between = given.text(0);
  if (between.empty()) call.meter.fail("split() has an empty separator");
  call.meter.bytes(call.text().size());
  Strings parts;
  std::string_view left = call.text();
  while (most < 0 || std::ssize(parts) < most) {
    const size_t at = from_right ? left.rfind(between) : left.find(between);
    if (at == left.npos) break;
    parts.emplace_back(from_right ? left.substr(at + between.size()) : left.substr(0, at));
    left = from_right ? left.substr(0, at) : left.substr(at + between.size());
    call.meter.step();
    call.meter.texts(1);
  }
  parts.emplace_back(left);
  if (from_right) std::ranges::reverse(parts);
  return call.meter.list(std::move(parts));
}

Value splitlines(const MethodCall& call) {
  call.read({});
  call.meter.bytes(call.text().size());
  call.meter.bytes(most_lines(call.text()) * sizeof(std::string_view));
  Strings lines;
  for (const std::string_view line : lines_of(call.text())) {
    call.meter.texts(1);
    lines.emplace_back(line);
  }
  return call.meter.list(std::move(lines));
}

Value has_end(const MethodCall& call) {
  const ArgumentReader given = call.read({"prefix"});
  const auto is_there = [&call](const Value& end) {
    const std::string& part = text_in(call.meter, end, "an argument of " + std::string(call.name));
    return call.name == "startswith" ? call.text().starts_with(part) : call.text().ends_with(part);
  };
  const List* several = given.at(0).list();
  if (!several) return is_there(given.at(0));
  call.meter.step(std::ssize(several->items));
  return std::ranges::any_of(several->items, is_there);
}

Value without_end(const MethodCall& call) {
  const ArgumentReader given = call.read({"prefix"});
  const std::string &text = call.text(), &part = given.text(0);
  call.meter.bytes(text.size());
  if (call.name == "removeprefix") return text.starts_with(part) ? text.substr(part.size()) : text;
  return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
}

Value letters(const MethodCall& call) {
  call.read({});
  return in_case(call.meter, call.name, call.text());
}

Value replace(const MethodCall& call) {
  const ArgumentReader given = call.read({"old", "new", "count"});
  return replaced(call.meter, call.text(), given.text(0), given.text(1), given.integer(2, -1));
}

Value find(const MethodCall& call) {
  const ArgumentReader given = call.read({"sub"});
  const std::string& text = call.text();
  call.meter.step(1 + std::ssize(text) / 32);
  const size_t at = call.name == "find" ? text.find(given.text(0)) : text.rfind(given.text(0));
  return at == text.npos ? int64_t{-1} : character_count(std::string_view(text).substr(0, at));
}

Value count(const MethodCall& call) {
  const ArgumentReader given = call.read({"sub"});
  if (const List* list = call.self.list()) {
    call.meter.step(call.self.weight());
    return static_cast<int64_t>(std::ranges::count_if(
        list->items, [&](const Value& item) { return equal(item, given.at(0)); }));
  }
  const std::string &text = call.text(), &part = given.text(0);
  call.meter.step(1 + std::ssize(text));
  if (part.empty()) return character_count(text) + 1;
  int64_t times = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++times;
  return times;
}

Value join(const MethodCall& call) {
  const ArgumentReader given = call.read({"iterable"});
  std::string all;
  bool first = true;
  for (const Value& item : items_of(call.meter, given.at(0))->items) {
    const std::string& part = text_in(call.meter, item, "an item of join()");
    if (!std::exchange(first, false)) append(call.meter, all, call.text());
    append(call.meter, all, part);
  }
  return all;
}

Value kind_of_text(const MethodCall& call) {
  call.read({});
  const std::string& text = call.text();
  call.meter.step(1 + std::ssize(text) / 32);
  if (call.name == "isspace") return !text.empty() && stripped(text, Ends::left).empty();
  if (!is_ascii(text)) call.meter.fail_unknown("isdigit() of a text that is not ASCII");
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

Value members(const MethodCall& call) {
  call.read({});
  std::vector<Value> all;
  for (const auto& [name, value] : call.self.dict()->members()) {
    call.meter.bytes(name.size() + kListBytes);
    call.meter.texts(3);  // a pair and its items
    if (call.name == "keys")
      all.emplace_back(name);
    else if (call.name == "values")
      all.push_back(value);
    else
      all.push_back(call.meter.list({Value(name), value}, true));
  }
  return call.meter.list(std::move(all));
}

Value get(const MethodCall& call) {
  const ArgumentReader given = call.read({"key", "default"});
  const std::string* name = given.at(0).text();
  const Value* member = name ? call.self.dict()->find(*name) : nullptr;
  if (member) return *member;
  return given.find(1) ? *given.find(1) : Value(None{});
}

Value index(const MethodCall& call) {
  const ArgumentReader given = call.read({"value"});
  const auto& items = call.self.list()->items;
  call.meter.step(call.self.weight());
  const auto at =
      std::ranges::find_if(items, [&](const Value& item) { return equal(item, given.at(0)); });
  if (at == items.end()) call.meter.fail("index(): the list has no such item");
  return static_cast<int64_t>(at - items.begin());
}

Value cycle(const MethodCall& call) {
  if (call.arguments.given.empty()) call.meter.fail("loop.cycle() needs arguments");
  return call.arguments.given[call.self.loop()->index % call.arguments.given.size()];
}

using Method = Value (*)(const MethodCall&);
using Methods = std::pair<std::string_view, Method>;

constexpr std::array<Methods, 23> kOfText = {{{"strip", strip},
                                              {"lstrip", strip},
                                              {"rstrip", strip},
                                              {"split", split},
                                              {"rsplit", split},
                                              {"splitlines", splitlines},
                                              {"startswith", has_end},
                                              {"endswith", has_end},
                                              {"removeprefix", without_end},
                                              {"removesuffix", without_end},
                                              {"upper", letters},
                                              {"lower", letters},
                                              {"title", letters},
                                              {"capitalize", letters},
                                              {"replace", replace},
                                              {"find", find},
                                              {"rfind", find},
                                              {"count", count},
                                              {"join", join},
                                              {"isspace", kind_of_text},
                                              {"isdigit", kind_of_text},
                                              {"isnumeric", kind_of_text},
                                              {"isdecimal", kind_of_text}}};
constexpr std::array<Methods, 4> kOfDict = {
    {{"items", members}, {"keys", members}, {"values", members}, {"get", get}}};
constexpr std::array<Methods, 2> kOfList = {{{"count", count}, {"index", index}}};
constexpr std::array<Methods, 1> kOfLoop = {{{"cycle", cycle}}};

template <size_t n>
Method method_in(const std::array<Methods, n>& methods, std::string_view name) {
  const auto at = std::ranges::find(methods, name, &Methods::first);
  return at == methods.end() ? nullptr : at->second;
}

Method find_method(const Value& self, std::string_view name) {
  if (self.is_text()) return method_in(kOfText, name);
  if (self.dict()) return method_in(kOfDict, name);
  if (self.list()) return method_in(kOfList, name);
  return self.loop() ? method_in(kOfLoop, name) : nullptr;
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  return find_method(self, name) != nullptr;
}

Value call_method(Meter& meter, const Value& self, std::string_view name,
                  const CallArguments& arguments) {
  const Method method = find_method(self, name);
  if (!method) meter.fail_unknown(fmt::format("the method '{}' of {}", name, self.type_name()));
  return method({meter, self, name, arguments});
}

}  // namespace dstrain::jinja
