// The tests and functions of templates, and what loops and outputs make of values.
#include <algorithm>
#include <array>

#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/builtins.h"
#include "runtime/data/chat/jinja/call_arguments.h"
#include "runtime/data/chat/jinja/python_text.h"

namespace dstrain::jinja {
namespace {

struct TestCall {
  Meter& meter;
  const Value& subject;
  std::string_view name;
  const CallArguments& arguments;

  ArgumentReader read(std::initializer_list<std::string_view> names) const {
    return {meter, fmt::format("the test '{}'", name), arguments, names};
  }
  bool compare_with(std::string_view sign) const {
    return compare(meter, sign, subject, read({"other"}).at(0));
  }
  int64_t whole_rest(int64_t divisor) const {
    if (!subject.integer() || divisor == 0)
      meter.fail(fmt::format("the test '{}' is for int", name));
    return *subject.integer() % divisor;
  }
};

using Test = bool (*)(const TestCall&);
using NamedTest = std::pair<std::string_view, Test>;

bool is_sequence(const TestCall& call) {
  const Value& value = call.subject;
  return value.is_text() || value.list() || value.dict() || value.is_undefined();
}

constexpr std::array<NamedTest, 34> kTests = {{
    {"defined", [](const TestCall& call) { return !call.subject.is_undefined(); }},
    {"undefined", [](const TestCall& call) { return call.subject.is_undefined(); }},
    {"none", [](const TestCall& call) { return call.subject.is_none(); }},
    {"string", [](const TestCall& call) { return call.subject.is_text(); }},
    {"mapping", [](const TestCall& call) { return call.subject.dict() != nullptr; }},
    {"iterable", is_sequence},
    {"sequence", is_sequence},
    {"number", [](const TestCall& call) { return call.subject.is_number(); }},
    {"integer", [](const TestCall& call) { return call.subject.is_int(); }},
    {"float", [](const TestCall& call) { return call.subject.is_real(); }},
    {"boolean", [](const TestCall& call) { return call.subject.is_bool(); }},
    {"true", [](const TestCall& call) { return call.subject.is_bool() && call.subject.truth(); }},
    {"false", [](const TestCall& call) { return call.subject.is_bool() && !call.subject.truth(); }},
    {"callable", [](const TestCall& call) { return call.subject.function() != nullptr; }},
    {"odd", [](const TestCall& call) { return call.whole_rest(2) != 0; }},
    {"even", [](const TestCall& call) { return call.whole_rest(2) == 0; }},
    {"divisibleby",
     [](const TestCall& call) { return call.whole_rest(call.read({"num"}).integer(0, 0)) == 0; }},
    {"in", [](const TestCall& call) { return call.compare_with("in"); }},
    {"equalto", [](const TestCall& call) { return call.compare_with("=="); }},
    {"eq", [](const TestCall& call) { return call.compare_with("=="); }},
    {"==", [](const TestCall& call) { return call.compare_with("=="); }},
    {"ne", [](const TestCall& call) { return call.compare_with("!="); }},
    {"!=", [](const TestCall& call) { return call.compare_with("!="); }},
    {"lt", [](const TestCall& call) { return call.compare_with("<"); }},
    {"<", [](const TestCall& call) { return call.compare_with("<"); }},
    {"lessthan", [](const TestCall& call) { return call.compare_with("<"); }},
    {"le", [](const TestCall& call) { return call.compare_with("<="); }},
    {"<=", [](const TestCall& call) { return call.compare_with("<="); }},
    {"gt", [](const TestCall& call) { return call.compare_with(">"); }},
    {">", [](const TestCall& call) { return call.compare_with(">"); }},
    {"greaterthan", [](const TestCall& call) { return call.compare_with(">"); }},
    {"ge", [](const TestCall& call) { return call.compare_with(">="); }},
    {">=", [](const TestCall& call) { return call.compare_with(">="); }},
    {"filter",
     [](const TestCall& call) {
       return call.subject.is_text() && has_filter(*call.subject.text());
     }},
}};

Value range(Meter& meter, const CallArguments& arguments) {
  const ArgumentReader given(meter, "range()", arguments, {"start", "stop", "step"});
  const int64_t first = given.integer(0, 0), second = given.integer(1, 0),
                step = given.integer(2, 1);
  given.at(0);
  const int64_t begin = given.find(1) ? first : 0, end = given.find(1) ? second : first;
  if (step == 0) meter.fail("range() has the step 0");
  // In 128 bits, because the difference of two bounds may have 65.
  const __int128 distance =
      step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const __int128 width = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  constexpr __int128 kMost = int64_t{1} << 40;
  const auto count =
      static_cast<int64_t>(std::clamp((distance + width - 1) / width, __int128{0}, kMost));
  meter.step(count);
  meter.items(static_cast<size_t>(count));
  std::vector<Value> numbers;
  numbers.reserve(static_cast<size_t>(count));
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    numbers.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return meter.list(std::move(numbers));
}

// Returns the members that dict() and namespace() make of their arguments.
Dict members_of_arguments(Meter& meter, std::string_view name, const CallArguments& arguments) {
  Dict members;
  if (arguments.given.size() > 1)
    meter.fail(fmt::format("{}() takes at most 1 argument without a name", name));
  if (!arguments.given.empty()) {
    const Dict* given = arguments.given[0].dict();
    if (!given) meter.fail_unknown(fmt::format("{}() of {}", name, arguments.given[0].type_name()));
    meter.step(std::ssize(given->members()));
    for (const auto& [member, value] : given->members()) count_member(meter, member);
    members = *given;
  }
  for (const auto& [member, value] : arguments.named) {
    count_member(meter, member);
    members.add(member, value);
  }
  if (members.levels() > kDeepestValue)
    meter.fail(
        fmt::format("{}() holds a namespace, or is nested more than {} deep", name, kDeepestValue));
  return members;
}

Value now_as_text(Meter& meter, const CallArguments& arguments) {
  constexpr size_t kMostFormat = 200, kMostText = 8192;
  const ArgumentReader given(meter, "strftime_now()", arguments, {"format"});
  const std::string& format = given.text(0);
  if (format.size() > kMostFormat || format.find('\0') != format.npos)
    meter.fail(
        fmt::format("strftime_now() has a format of more than {} bytes, or with NUL", kMostFormat));
  const std::time_t now = meter.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::string text(kMostText, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return meter.text(text);
}

const Test* find_test(std::string_view name) {
  const auto at = std::ranges::find(kTests, name, &NamedTest::first);
  return at == kTests.end() ? nullptr : &at->second;
}

}  // namespace

bool has_test(std::string_view name) {
  return find_test(name) != nullptr;
}

bool apply_test(Meter& meter, std::string_view name, const Value& subject,
                const CallArguments& arguments) {
  const Test* test = find_test(name);
  if (!test) meter.fail_unknown(fmt::format("the test '{}'", name));
  return (*test)({meter, subject, name, arguments});
}

bool has_function(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {"raise_exception", "strftime_now", "range",
                                                      "namespace", "dict"};
  return std::ranges::find(kNames, name) != kNames.end();
}

Value call_function(Meter& meter, std::string_view name, const CallArguments& arguments) {
  if (name == "range") return range(meter, arguments);
  if (name == "strftime_now") return now_as_text(meter, arguments);
  if (name == "dict")
    return std::make_shared<const Dict>(members_of_arguments(meter, name, arguments));
  if (name == "namespace")
    return std::make_shared<Namespace>(Namespace{members_of_arguments(meter, name, arguments)});
  const ArgumentReader given(meter, "raise_exception()", arguments, {"message"});
  constexpr size_t kMostReason = 2000;
  meter.fail(fmt::format("the template refuses the conversation: {}",
                         printed(meter, given.at(0)).substr(0, kMostReason)));
}

std::shared_ptr<const List> items_of(Meter& meter, const Value& value) {
  if (auto list = value.shared_list()) {
    meter.step();
    return list;
  }
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    meter.items(dict->members().size());
    for (const auto& [name, member] : dict->members()) items.push_back(meter.text(name));
  } else if (const std::string* text = value.text()) {
    const auto count = static_cast<size_t>(character_count(*text));
    meter.texts(count);
    meter.bytes(text->size() + count * sizeof(size_t));
    const std::vector<size_t> places = character_places(*text);
    items.reserve(count);
    for (size_t i = 0; i + 1 < places.size(); ++i)
      items.emplace_back(text->substr(places[i], places[i + 1] - places[i]));
  } else if (!value.is_undefined()) {
    meter.fail(fmt::format("{} has no items", value.type_name()));
  }
  return meter.list(std::move(items)).shared_list();
}

bool holds(Meter& meter, const Value& value) {
  refuse_generator(meter, value, "truth");
  return value.truth();
}

void refuse_generator(Meter& meter, const Value& value, std::string_view what) {
  if (value.list() && value.list()->generator)
    meter.fail(fmt::format(
        "what select, reject, map and the like give has no {} of its own: put the filter list "
        "behind it",
        what));
}

std::string printed(Meter& meter, const Value& value) {
  meter.step(value.weight());
  refuse_generator(meter, value, "text");
  if (value.is_missing()) meter.fail(fmt::format("there is no {}", value.undefined_name()));
  return text_of(value, [&meter](size_t bytes) { meter.bytes(bytes); });
}

void count_member(Meter& meter, std::string_view name) {
  // A large dict has a table of names, too.
  meter.bytes(sizeof(Dict::Member) + 2 * (name.size() + kTextBytes));
}

const std::string& text_in(Meter& meter, const Value& value, std::string_view what) {
  if (value.is_undefined())
    meter.fail(fmt::format("{}: '{}' is undefined", what, value.undefined_name()));
  if (!value.is_text())
    meter.fail(fmt::format("{} must be a str, and is {}", what, value.type_name()));
  return *value.text();
}

}  // namespace dstrain::jinja
