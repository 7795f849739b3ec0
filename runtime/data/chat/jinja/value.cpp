#include "runtime/data/chat/jinja/value.h"

#include <algorithm>
#include <cmath>

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

std::string joined(const std::vector<Value>& items) {
  std::string text;
  for (const Value& item : items) {
    if (!text.empty()) text += ", ";
    text += repr_of(item);
  }
  return text;
}

std::string list_text(const List& list) {
  const std::string items = joined(list.items);
  if (!list.tuple) return "[" + items + "]";
  return "(" + items + (list.items.size() == 1 ? ",)" : ")");
}

std::string dict_text(const Dict& dict) {
  std::string text = "{";
  for (const auto& [name, value] : dict.members()) {
    if (text.size() > 1) text += ", ";
    text += quoted_text(name) + ": " + repr_of(value);
  }
  return text + "}";
}

}  // namespace

Value Value::undefined(std::string name) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(name)), true};
  return value;
}

Value Value::missing(std::string name) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(name)), false};
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

std::string text_of(const Value& value) {
  if (const std::string* text = value.text()) return *text;
  if (value.is_undefined()) return "";
  return repr_of(value);
}

std::string repr_of(const Value& value) {
  if (const std::string* text = value.text()) return quoted_text(*text);
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.truth() ? "True" : "False";
  if (const auto number = value.integer()) return std::to_string(*number);
  if (const auto number = value.real()) return real_text(*number);
  if (const List* list = value.list()) return list_text(*list);
  if (const Dict* dict = value.dict()) return dict_text(*dict);
  if (const Function* function = value.function()) return "<function " + function->name + ">";
  return "<" + value.type_name() + ">";
}

}  // namespace dstrain::jinja
