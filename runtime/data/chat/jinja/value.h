// Value: a value of a chat template, with Python's rules: what is true, equal, less, and how it is printed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace dstrain::jinja {

class Value;
struct List;
class Dict;
struct Namespace;
struct Loop;
struct Function;

struct None {};
// The value of what is not there: `name` is what was looked for, for messages.
struct Undefined {
  std::shared_ptr<const std::string> name;
  bool printed = true;  // as an empty text
};

using Text = std::shared_ptr<const std::string>;

// A value that cannot change, but for the members of a namespace; copies share it.
class Value {
 public:
  Value() = default;  // undefined
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}
  Value(std::shared_ptr<const Function> function) : data_(std::move(function)) {}
  // Returns the undefined value of something that is not there.
  static Value undefined(std::string_view name);
  // The same, of what a template must not print, because its text would lack what is meant.
  static Value missing(std::string_view name);

  bool is_undefined() const { return is<Undefined>(); }
  bool is_missing() const { return is_undefined() && !std::get<Undefined>(data_).printed; }
  bool is_none() const { return is<None>(); }
  bool is_bool() const { return is<bool>(); }
  bool is_int() const { return is<int64_t>(); }
  bool is_real() const { return is<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_real(); }
  bool is_text() const { return is<Text>(); }

  // The value of this type; null, or nothing, where it is of another one.
  const std::string* text() const;
  const List* list() const;
  const Dict* dict() const;
  Namespace* space() const;
  const Loop* loop() const;
  const Function* function() const;
  std::optional<int64_t> integer() const;  // of a boolean too
  std::optional<double> real() const;      // of each number
  std::shared_ptr<const List> shared_list() const;
  // Returns "x", the name of what is not there, of an undefined value.
  std::string undefined_name() const;

  bool truth() const;
  // Returns the name of the type in Python: "str", "list".
  std::string type_name() const;
  // The levels of lists and dicts in it; kDeepestValue + 1 for what must not be inside of others.
  int depth() const;
  // The values in it and parts of texts, of each place where a value is: what comparing or printing it takes.
  int64_t weight() const;

 private:
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }

  std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Loop>,
               std::shared_ptr<const Function>>
      data_;
};

inline constexpr int kDeepestValue = 70;

struct List {
  std::vector<Value> items;
  bool tuple = false;
  bool generator = false;  // in Jinja it is no list before it is read
  int levels = 1;
  int64_t weight = 1;
};

// Members in the order in which they were added.
class Dict {
 public:
  using Member = std::pair<std::string, Value>;

  // Replaces the value of a name that is there.
  void add(std::string name, Value value);
  // Returns null if there is no such member.
  const Value* find(std::string_view name) const;
  const std::vector<Member>& members() const { return members_; }
  int levels() const { return levels_; }
  int64_t weight() const { return weight_; }

 private:
  std::optional<size_t> place_of(std::string_view name) const;

  std::vector<Member> members_;
  std::unordered_map<std::string, size_t> places_;  // of many members
  int levels_ = 1;
  int64_t weight_ = 1;
};

struct Namespace {
  Dict members;
};

// The variable `loop` in an iteration.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
};

struct Statement;

// A function of the template language, a method of `self`, or a macro of the template.
struct Function {
  std::string name;
  Value self;
  const Statement* macro = nullptr;
};

// Makes a list; one that is nested more than kDeepestValue deep has levels above that, which the caller must refuse.
Value list_of(std::vector<Value> items, bool tuple = false, bool generator = false);

bool equal(const Value& a, const Value& b);
// Returns whether a is less than b, or equal where `or_equal`; nothing where the two have no order.
std::optional<bool> less(const Value& a, const Value& b, bool or_equal);

// Returns str(value), and repr(value). `count` is called with bytes that are about to be made.
std::string text_of(
    const Value& value, const std::function<void(size_t)>& count = [](size_t) {});
std::string repr_of(
    const Value& value, const std::function<void(size_t)>& count = [](size_t) {});

}  // namespace dstrain::jinja
