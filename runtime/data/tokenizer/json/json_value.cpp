#include "runtime/data/tokenizer/json/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr int kDeepest = 64;          // levels of a file
constexpr size_t kLongestFound = 60;  // characters of a value in a message

// Throws UserError if arrays and objects are nested too deeply. What is not JSON is left to the parser.
void refuse_deep(std::string_view text, const std::string& source) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepest)
      fail_user("{}: byte {}: arrays and objects are nested more than {} deep", source, i,
                kDeepest);
  }
}

}  // namespace

json parse_json_text(std::string_view text, const std::string& source) {
  text = without_byte_order_mark(text);
  refuse_deep(text, source);
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    const std::string what = e.what();
    fail_user("{}: is not JSON: {}", source, what.substr(0, 300));
  }
}

bool JsonValue::is_null() const {
  return value_->is_null();
}

const std::string& JsonValue::text() const {
  if (!value_->is_string()) fail_expected("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail_expected("true or false");
  return value_->get<bool>();
}

uint32_t JsonValue::id() const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() >= kMostTokenIds)
    fail_expected(fmt::format("a token id, an integer from 0 to {}", kMostTokenIds - 1));
  return value_->get<uint32_t>();
}

std::string JsonValue::type() const {
  return at("type").text();
}

std::optional<JsonValue> JsonValue::find(const std::string& name) const {
  if (!value_->is_object()) fail_expected("an object");
  const auto member = value_->find(name);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return JsonValue(*member, *source_, path_.empty() ? name : path_ + "." + name);
}

JsonValue JsonValue::at(const std::string& name) const {
  if (auto member = find(name)) return *member;
  fail(fmt::format("has no \"{}\"", name));
}

bool JsonValue::flag(const std::string& name, bool otherwise) const {
  const auto member = find(name);
  return member ? member->boolean() : otherwise;
}

void JsonValue::each(const std::function<void(const JsonValue&)>& visit) const {
  if (!value_->is_array()) fail_expected("an array");
  size_t number = 0;
  for (const nlohmann::json& element : *value_)
    visit(JsonValue(element, *source_, fmt::format("{}[{}]", path_, number++)));
}

std::string JsonValue::place() const {
  return path_.empty() ? *source_ : *source_ + ": " + path_;
}

void JsonValue::fail(std::string_view message) const {
  fail_user("{}: {}", place(), message);
}

void JsonValue::fail_expected(std::string_view expected) const {
  std::string found = value_->is_structured()
                          ? std::string(value_->type_name())
                          : value_->dump(-1, ' ', true, json::error_handler_t::replace);
  if (found.size() > kLongestFound) found = found.substr(0, kLongestFound) + "...";
  fail(fmt::format("expected {}, found {}", expected, found));
}

}  // namespace dstrain
