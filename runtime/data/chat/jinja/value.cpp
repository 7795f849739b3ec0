#include "runtime/data/chat/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/data/chat/jinja/python_text.h"

namespace dstrain::jinja {
namespace {

constexpr size_t kManyMembers = 16;  // from here on a table finds them
constexpr int64_t kMostWeight = int64_t{1} << 60;
constexpr size_t kPartOfText = 32;  // bytes that weigh as much as a value

template <class T>
const T* get_shared(const std::shared_ptr<T>* pointer) {
  return pointer ? pointer->get() : nullptr;
}

void append_repr(std::string& out, const Value& value, const CountBytes& count);

void append(std::string& out, std::string_view text, const CountBytes& count) {
  count(text.size());
  out += text;
}

void append_list(std::string& out, const List& list, const CountBytes& count) {
  append(out, list.tuple ? "(" : "[", count);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) append(out, ", ", count);
    append_repr(out, list.items[i], count);
  }
  append(out, !list.tuple ? "]" : list.items.size() == 1 ? ",)" : ")", count);
}

void append_dict(std::string& out, const Dict& dict, const CountBytes& count) {
  append(out, "{", count);
  bool first = true;
  for (const auto& [name, value] : dict.members()) {
    if (!std::exchange(first, false)) append(out, ", ", count);
    append_quoted(out, name, count);
    append(out, ": ", count);
    append_repr(out, value, count);
  }
  append(out, "}", count);
}

void append_repr(std::string& out, const Value& value, const CountBytes& count) {
  if (const std::string* text = value.text()) return append_quoted(out, *text, count);
  if (const List* list = value.list()) return append_list(out, *list, count);
  if (const Dict* dict = value.dict()) return append_dict(out, *dict, count);
  const Function* const function = value.function();
  append(out,
         value.is_undefined() ? "Undefined"
         : value.is_none()    ? "None"
         : value.is_bool()    ? (value.truth() ? "True" : "False")
         : value.is_int()     ? std::to_string(*value.integer())
         : value.is_real()    ? real_text(*value.real())
         : function           ? "<function " + function->name + ">"
                              : "<" + value.type_name() + ">",
         count);
}

// Returns a name for messages, of which a template may make any text.
std::shared_ptr<const std::string> name_of_missing(std::string_view name) {
  constexpr size_t kLongestName = 200;
  return std::make_shared<const std::string>(name.substr(0, kLongestName));
}

}  // namespace

Value Value::undefined(std::string_view name) {
  Value value;
  value.data_ = Undefined{name_of_missing(name), true};
  return value;
}

Value Value::missing(std::string_view name) {
  Value value;
  value.data_ = Undefined{name_of_missing(name), false};
  return value;
}

const std::string* Value::text() const {
  return get_shared(std::get_if<Text>(&data_));
}

const List* Value::list() const {
  return get_shared(std::get_if<std::shared_ptr<const List>>(&data_));
}

std::shared_ptr<const List> Value::shared_list() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
  return list ? *list : nullptr;
}

const Dict* Value::dict() const {
  return get_shared(std::get_if<std::shared_ptr<const Dict>>(&data_));
}

Namespace* Value::space() const {
  const auto* space = std::get_if<std::shared_ptr<Namespace>>(&data_);
  return space ? space->get() : nullptr;
}

const Loop* Value::loop() const {
  return get_shared(std::get_if<std::shared_ptr<const Loop>>(&data_));
}

const Function* Value::function() const {
  return get_shared(std::get_if<std::shared_ptr<const Function>>(&data_));
}

std::optional<int64_t> Value::integer() const {
  if (const bool* flag = std::get_if<bool>(&data_)) return *flag ? 1 : 0;
  if (const int64_t* number = std::get_if<int64_t>(&data_)) return *number;
  return std::nullopt;
}

std::optional<double> Value::real() const {
  if (const double* number = std::get_if<double>(&data_)) return *number;
  if (const auto number = integer()) return static_cast<double>(*number);
  return std::nullopt;
}

std::string Value::undefined_name() const {
  const auto* undefined = std::get_if<Undefined>(&data_);
  return undefined && undefined->name ? *undefined->name : "a value";
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (const auto number = real()) return *number != 0;
  if (const std::string* s = text()) return !s->empty();
  if (const List* l = list()) return !l->items.empty();
  if (const Dict* d = dict()) return !d->members().empty();
  return true;
}

std::string Value::type_name() const {
  constexpr const char* kNames[] = {"undefined", "None", "bool",      "int",  "float",   "str",
                                    "list",      "dict", "namespace", "loop", "function"};
  return list() && list()->tuple ? "tuple" : kNames[data_.index()];
}

int Value::depth() const {
  if (const List* l = list()) return l->levels;
  if (const Dict* d = dict()) return d->levels();
  // A namespace can be given what holds it; what is inside of others must end.
  return space() || loop() || function() ? kDeepestValue + 1 : 0;
}

int64_t Value::weight() const {
  if (const std::string* s = text()) return static_cast<int64_t>(1 + s->size() / kPartOfText);
  if (const List* l = list()) return l->weight;
  if (const Dict* d = dict()) return d->weight();
  return 1;
}

void Dict::add(std::string name, Value value) {
  levels_ = std::max(levels_, 1 + value.depth());
  weight_ = std::min(weight_ + value.weight() + static_cast<int64_t>(name.size() / kPartOfText),
                     kMostWeight);
  if (const auto place = place_of(name)) {
    members_[*place].second = std::move(value);
    return;
  }
  members_.emplace_back(std::move(name), std::move(value));
  if (members_.size() < kManyMembers) return;
  if (places_.empty())
    for (size_t i = 0; i < members_.size(); ++i) places_.emplace(members_[i].first, i);
  else
    places_.emplace(members_.back().first, members_.size() - 1);
}

const Value* Dict::find(std::string_view name) const {
  const auto place = place_of(name);
  return place ? &members_[*place].second : nullptr;
}

std::optional<size_t> Dict::place_of(std::string_view name) const {
  if (!places_.empty()) {
    const auto at = places_.find(std::string(name));
    return at == places_.end() ? std::nullopt : std::optional(at->second);
  }
  const auto at = std::ranges::find(members_, name, &Member::first);
  return at == members_.end() ? std::nullopt : std::optional<size_t>(at - members_.begin());
}

Value list_of(std::vector<Value> items, bool tuple, bool generator) {
  int levels = 1;
  int64_t weight = 1;
  for (const Value& item : items) {
    levels = std::max(levels, 1 + item.depth());
    weight = std::min(weight + item.weight(), kMostWeight);
  }
  return std::make_shared<const List>(List{std::move(items), tuple, generator, levels, weight});
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (const auto x = a.integer(), y = b.integer(); x && y) return *x == *y;
    return *a.real() == *b.real();
  }
  if (const std::string* x = a.text(), *y = b.text(); x && y) return *x == *y;
  if (const List* x = a.list(), *y = b.list(); x && y)
    return x == y || (x->tuple == y->tuple && std::ranges::equal(x->items, y->items, equal));
  if (const Dict* x = a.dict(), *y = b.dict(); x && y) {
    if (x->members().size() != y->members().size()) return false;
    return std::ranges::all_of(x->members(), [y](const Dict::Member& member) {
      const Value* other = y->find(member.first);
      return other && equal(member.second, *other);
    });
  }
  if (a.space() || b.space()) return a.space() == b.space();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

std::optional<bool> less(const Value& a, const Value& b, bool or_equal) {
  if (a.is_number() && b.is_number()) {
    if (const auto x = a.integer(), y = b.integer(); x && y) return or_equal ? *x <= *y : *x < *y;
    const double x = *a.real(), y = *b.real();
    return or_equal ? x <= y : x < y;
  }
  if (const std::string* x = a.text(), *y = b.text(); x && y) return or_equal ? *x <= *y : *x < *y;
  const List *x = a.list(), *y = b.list();
  if (!x || !y || x->tuple != y->tuple) return std::nullopt;
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i)
    if (!equal(x->items[i], y->items[i])) return less(x->items[i], y->items[i], or_equal);
  return or_equal ? x->items.size() <= y->items.size() : x->items.size() < y->items.size();
}

std::string text_of(const Value& value, const CountBytes& count) {
  if (value.is_undefined()) return "";
  std::string out;
  if (const std::string* text = value.text())
    append(out, *text, count);
  else
    append_repr(out, value, count);
  return out;
}

std::string repr_of(const Value& value, const CountBytes& count) {
  std::string out;
  append_repr(out, value, count);
  return out;
}

}  // namespace dstrain::jinja
