// Comparisons, arithmetic, items and attributes, as Python has them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/builtins.h"
#include "runtime/data/chat/jinja/python_text.h"

namespace dstrain::jinja {
namespace {

[[noreturn]] void fail_types(Meter& meter, std::string_view sign, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b})
    if (value->is_undefined())
      meter.fail(fmt::format("'{}' is undefined", value->undefined_name()));
  meter.fail(fmt::format("'{}' is not for {} and {}", sign, a.type_name(), b.type_name()));
}

bool contains(Meter& meter, const Value& all, const Value& part) {
  if (const std::string* text = all.text()) {
    if (!part.is_text()) fail_types(meter, "in", part, all);
    return text->find(*part.text()) != text->npos;
  }
  if (const Dict* dict = all.dict()) return part.is_text() && dict->find(*part.text());
  if (all.is_undefined()) return false;
  const List* list = all.list();
  if (!list) fail_types(meter, "in", part, all);
  return std::ranges::any_of(list->items, [&](const Value& item) {
    meter.step(std::min(item.weight(), part.weight()));
    return equal(item, part);
  });
}

int64_t whole(Meter& meter, std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (sign == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (sign == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (sign == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (sign == "//" || sign == "%") {
    if (b == 0) meter.fail("a division by zero");
    overflow = b == -1 && a == std::numeric_limits<int64_t>::min();
    if (!overflow) {
      const int64_t rest = a % b;
      const bool below = rest != 0 && (rest < 0) != (b < 0);
      result = sign == "%" ? (below ? rest + b : rest) : a / b - (below ? 1 : 0);
    }
  }
  if (overflow) meter.fail("an integer is larger than 64 bits");
  return result;
}

Value power(Meter& meter, int64_t base, int64_t exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = whole(meter, "*", result, base);
    if (exponent > 1) base = whole(meter, "*", base, base);
  }
  return result;
}

double of_reals(Meter& meter, std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") return std::pow(a, b);
  if (b == 0) meter.fail("a division by zero");
  if (sign == "/") return a / b;
  const double rest = std::fmod(a, b);
  const double modulo = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  return sign == "%" ? modulo : std::floor((a - modulo) / b + 0.5);
}

Value repeated(Meter& meter, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max(times, int64_t{0}));
  constexpr size_t kMost = size_t{1} << 40;
  const std::string* text = value.text();
  const size_t each = text ? text->size() : value.list()->items.size() * sizeof(Value);
  if (each == 0) return value;
  const size_t bytes = count > kMost / each ? kMost : count * each;
  meter.bytes(bytes);
  if (text) {
    meter.check_output(bytes);
    std::string all;
    all.reserve(count * each);
    for (size_t i = 0; i < count; ++i) all += *text;
    return all;
  }
  std::vector<Value> all;
  all.reserve(count * value.list()->items.size());
  for (size_t i = 0; i < count; ++i)
    all.insert(all.end(), value.list()->items.begin(), value.list()->items.end());
  return meter.list(std::move(all), value.list()->tuple);
}

Value sum(Meter& meter, const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) {
    const size_t bytes = a.text()->size() + b.text()->size();
    meter.bytes(bytes + kTextBytes);
    meter.check_output(bytes);
    return *a.text() + *b.text();
  }
  const List *x = a.list(), *y = b.list();
  if (!x || !y || x->tuple != y->tuple) fail_types(meter, "+", a, b);
  meter.items(x->items.size() + y->items.size());
  std::vector<Value> items = x->items;
  items.insert(items.end(), y->items.begin(), y->items.end());
  return meter.list(std::move(items), x->tuple);
}

// Returns the place of an index from either end of `count` items; -1 if there is none.
int64_t place_of_index(int64_t index, int64_t count) {
  if (index < 0) index += count;
  return index >= 0 && index < count ? index : -1;
}

Value character(Meter& meter, const std::string& text, int64_t index) {
  meter.step(1 + std::ssize(text) / 32);
  const int64_t place = place_of_index(index, character_count(text));
  if (place < 0) return Value::undefined("a character");
  const size_t at = offset_of_character(text, place);
  return meter.text(std::string_view(text).substr(at, offset_of_character(text, place + 1) - at));
}

Value loop_attribute(Meter& meter, const Loop& loop, const std::string& name) {
  const auto index = static_cast<int64_t>(loop.index), count = std::ssize(loop.items->items);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == count - 1;
  if (name == "length") return count;
  // Loops inside of others count only where they are recursive, which is not available.
  if (name == "depth") return int64_t{1};
  if (name == "depth0") return int64_t{0};
  const bool previous = name == "previtem";
  if (!previous && name != "nextitem") meter.fail_unknown("loop." + name);
  if (previous ? index == 0 : index + 1 == count) return Value::undefined("loop." + name);
  return loop.items->items[previous ? loop.index - 1 : loop.index + 1];
}

}  // namespace

bool compare(Meter& meter, std::string_view sign, const Value& a, const Value& b) {
  meter.step(std::min(a.weight(), b.weight()));
  if (sign == "==") return equal(a, b);
  if (sign == "!=") return !equal(a, b);
  if (sign == "in" || sign == "not in") {
    if (const std::string* text = b.text()) meter.step(1 + std::ssize(*text) / 32);
    return contains(meter, b, a) == (sign == "in");
  }
  const bool swapped = sign.front() == '>';
  const auto result = swapped ? less(b, a, sign == ">=") : less(a, b, sign == "<=");
  if (!result) fail_types(meter, sign, a, b);
  return *result;
}

Value calculate(Meter& meter, std::string_view sign, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const auto x = a.integer(), y = b.integer();
    if (x && y && sign == "**") return power(meter, *x, *y);
    if (x && y && sign != "/") return whole(meter, sign, *x, *y);
    return of_reals(meter, sign, *a.real(), *b.real());
  }
  if (sign == "+") return sum(meter, a, b);
  if (sign == "*") {
    if (const auto times = b.integer(); times && (a.is_text() || a.list()))
      return repeated(meter, a, *times);
    if (const auto times = a.integer(); times && (b.is_text() || b.list()))
      return repeated(meter, b, *times);
  }
  if (sign == "%" && a.is_text()) meter.fail_unknown("formatting with '%'");
  fail_types(meter, sign, a, b);
}

Value item_of(Meter& meter, const Value& value, const Value& key) {
  if (value.is_undefined()) meter.fail(fmt::format("'{}' is undefined", value.undefined_name()));
  if (const Dict* dict = value.dict()) {
    if (const std::string* name = key.text())
      if (const Value* member = dict->find(*name)) return *member;
  } else if (const auto index = key.integer()) {
    if (const List* list = value.list()) {
      const int64_t place = place_of_index(*index, std::ssize(list->items));
      return place < 0 ? Value::undefined("an item") : list->items[static_cast<size_t>(place)];
    }
    if (const std::string* text = value.text()) return character(meter, *text, *index);
  }
  if (const std::string* name = key.text(); name && !value.dict())
    return attribute_of(meter, value, *name);
  return Value::undefined(key.is_text() ? *key.text() : "an item");
}

Value attribute_of(Meter& meter, const Value& value, const std::string& name) {
  if (value.is_undefined()) meter.fail(fmt::format("'{}' is undefined", value.undefined_name()));
  if (const Loop* loop = value.loop(); loop && name != "cycle")
    return loop_attribute(meter, *loop, name);
  if (const Namespace* space = value.space()) {
    const Value* member = space->members.find(name);
    return member ? *member : Value::undefined(name);
  }
  if (has_method(value, name))
    return std::make_shared<const Function>(Function{name, value, nullptr});
  if (const Dict* dict = value.dict())
    if (const Value* member = dict->find(name)) return *member;
  return Value::undefined(name);
}

Value slice_of(Meter& meter, const Value& value, const Value& begin, const Value& end,
               const Value& step) {
  const auto bound = [&meter](const Value& given, int64_t otherwise) {
    if (given.is_undefined() || given.is_none()) return otherwise;
    if (!given.integer()) meter.fail(fmt::format("a slice has a bound of {}", given.type_name()));
    return *given.integer();
  };
  const List* list = value.list();
  const std::string* text = value.text();
  if (!list && !text) meter.fail(fmt::format("a slice of {}", value.type_name()));
  const int64_t count = text ? character_count(*text) : std::ssize(list->items);
  meter.step(1 + count / 32);
  const int64_t by = bound(step, 1);
  if (by == 0) meter.fail("a slice has the step 0");
  // As Python's slice.indices().
  const int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? count : count - 1;
  const auto place = [&](const Value& given, int64_t otherwise) {
    const int64_t at = bound(given, otherwise);
    if (given.is_undefined() || given.is_none()) return at;
    return std::clamp(at < 0 ? at + count : at, lowest, highest);
  };
  const int64_t from = place(begin, by > 0 ? lowest : highest),
                to = place(end, by > 0 ? highest : lowest);
  const int64_t stride = std::clamp(by, -count - 1, count + 1);
  if (text && stride == 1) {
    const size_t first = offset_of_character(*text, from);
    const size_t last = offset_of_character(*text, std::max(from, to));
    return meter.text(std::string_view(*text).substr(first, last - first));
  }
  if (text) meter.bytes(text->size() + static_cast<size_t>(count + 1) * sizeof(size_t));
  const std::vector<size_t> places = text ? character_places(*text) : std::vector<size_t>();
  std::string characters;
  std::vector<Value> items;
  for (int64_t i = from; by > 0 ? i < to : i > to; i += stride) {
    const auto at = static_cast<size_t>(i);
    if (text) {
      characters += text->substr(places[at], places[at + 1] - places[at]);
    } else {
      meter.items(1);
      items.push_back(list->items[at]);
    }
  }
  if (text) return characters;
  return meter.list(std::move(items), list->tuple);
}

}  // namespace dstrain::jinja
