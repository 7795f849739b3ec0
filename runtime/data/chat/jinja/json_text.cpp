#include "runtime/data/chat/jinja/json_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/python_text.h"
#include "runtime/data/chat/jinja/text_growth.h"

namespace dstrain::jinja {
namespace {

constexpr size_t kDeepestJson = 64;
constexpr int64_t kMostIndent = 64;
constexpr size_t kLongestNumber = 32;

class JsonWriter {
 public:
  JsonWriter(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, int64_t level) {
    meter_.bytes(kLongestNumber);
    if (const std::string* text = value.text())
      string(*text);
    else if (const List* list = value.list())
      array(list->items, level);
    else if (const Dict* dict = value.dict())
      object(*dict, level);
    else if (value.is_none())
      out_ += "null";
    else if (value.is_bool())
      out_ += value.truth() ? "true" : "false";
    else if (value.is_real())
      real(*value.real());
    else if (value.is_int())
      out_ += std::to_string(*value.integer());
    else
      meter_.fail(fmt::format("{} is no JSON", value.is_undefined() ? "'" + value.undefined_name() +
                                                                          "', which is undefined,"
                                                                    : value.type_name()));
  }

  void add(const std::string& text) { append(meter_, out_, text); }

  void string(const std::string& text) {
    meter_.check_output(out_.size() + text.size());
    append_json_string(out_, text, [this](size_t bytes) { meter_.bytes(bytes); });
  }

  void real(double value) {
    out_ += std::isnan(value)   ? "NaN"
            : std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity")
                                : real_text(value);
  }

  void new_line(int64_t level) {
    if (style_.indent < 0) return;
    const auto spaces = static_cast<size_t>(std::min(style_.indent, kMostIndent) * level);
    meter_.bytes(spaces + 1);
    out_ += '\n';
    out_.append(spaces, ' ');
  }

  void array(const std::vector<Value>& items, int64_t level) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(style_.between);
      new_line(level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) new_line(level);
    out_ += ']';
  }

  void object(const Dict& dict, int64_t level) {
    std::vector<const Dict::Member*> members;
    meter_.bytes(dict.members().size() * sizeof(const Dict::Member*));
    for (const Dict::Member& member : dict.members()) members.push_back(&member);
    if (style_.sort_keys)
      std::ranges::sort(members, {}, [](const Dict::Member* member) { return member->first; });
    out_ += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) add(style_.between);
      new_line(level + 1);
      string(members[i]->first);
      add(style_.behind_name);
      write(members[i]->second, level + 1);
    }
    if (!members.empty()) new_line(level);
    out_ += '}';
  }

  Meter& meter_;
  const JsonStyle& style_;
  std::string out_;
};

// Receives what nlohmann's parser meets.
class JsonReader {
 public:
  explicit JsonReader(std::span<const std::string_view> exact) : exact_(exact) {}

  bool null() { return put(None{}); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return large_integer(static_cast<double>(value));
    return put(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& digits) {
    return digits.find_first_of(".eE") == digits.npos ? large_integer(value) : put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return open(false); }
  bool start_array(size_t) { return open(true); }
  bool key(std::string& name) {
    open_.back().name = std::move(name);
    return true;
  }
  bool end_object() {
    const auto dict = std::make_shared<const Dict>(std::move(open_.back().members));
    open_.pop_back();
    return put(dict);
  }
  bool end_array() {
    std::vector<Value> items = std::move(open_.back().items);
    open_.pop_back();
    return put(list_of(std::move(items)));
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) {
    const std::string what = e.what();
    fail_user("is not JSON: {}", what.substr(0, 300));
  }

  Value result;

 private:
  // An array or an object that is not read to its end.
  struct Open {
    bool array = false;
    std::string name;
    std::vector<Value> items;
    Dict members;
  };

  bool open(bool array) {
    if (open_.size() == kDeepestJson)
      fail_user("arrays and objects are nested more than {} deep", kDeepestJson);
    open_.push_back({array, {}, {}, {}});
    return true;
  }

  bool put(Value value) {
    if (open_.empty())
      result = std::move(value);
    else if (open_.back().array)
      open_.back().items.push_back(std::move(value));
    else
      open_.back().members.add(std::move(open_.back().name), std::move(value));
    return true;
  }

  // A template would write other digits than the line has.
  bool large_integer(double value) {
    if (!open_.empty() && std::ranges::find(exact_, open_.front().name) != exact_.end())
      fail_user("\"{}\": an integer is larger than 64 bits: make it a string", open_.front().name);
    return put(value);
  }

  std::span<const std::string_view> exact_;
  std::vector<Open> open_;
};

}  // namespace

Value json_text(Meter& meter, const Value& value, const JsonStyle& style) {
  return JsonWriter(meter, style).run(value);
}

Value parse_json(std::string_view text, std::span<const std::string_view> exact) {
  JsonReader reader(exact);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return std::move(reader.result);
}

std::string json_type(const Value& value) {
  if (value.is_text()) return "string";
  if (value.is_none()) return "null";
  if (value.is_bool()) return "boolean";
  if (value.is_number()) return "number";
  return value.list() ? "array" : "object";
}

}  // namespace dstrain::jinja
