#include "models/exported/text/json_field.h"

#include <limits>

#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

using nlohmann::json;

constexpr int kDeepestJson = 64;
constexpr int64_t kMostValues = 20'000'000;
constexpr size_t kLongestName = 1000;

// Appends to `path` how `wanted` is reached from `value`; returns whether it is inside.
bool find_path(const json& value, const json* wanted, std::string& path) {
  if (&value == wanted) return true;
  const size_t length = path.size();
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      path += (length == 0 ? "" : ".") + shown_text(key);
      if (find_path(member, wanted, path)) return true;
      path.resize(length);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      path += fmt::format("[{}]", i);
      if (find_path(value[i], wanted, path)) return true;
      path.resize(length);
    }
  }
  return false;
}

std::string_view kind_of_json(const json& value) {
  if (value.is_string()) return "a text";
  if (value.is_number_integer()) return "a whole number";
  if (value.is_number()) return "a fraction";
  if (value.is_boolean()) return "a truth value";
  if (value.is_array()) return "a list";
  return value.is_object() ? "an object" : "null";
}

}  // namespace

JsonDocument read_json(std::string_view text, std::string file, std::string_view left_out) {
  // The JSON parser would stop at a zero byte and ignore the rest.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    fail_user("{} is not JSON: it has a zero at byte {}", file, zero);
  int64_t values = 0;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepestJson) fail_user("{} is nested more than {} deep", file, kDeepestJson);
    if (++values > kMostValues)
      fail_user("{} has more than {} values, expected at most these", file, kMostValues);
    return event != json::parse_event_t::key || left_out.empty() ||
           parsed.get_ref<const std::string&>() != left_out;
  };
  JsonDocument document;
  try {
    document.root = std::make_unique<const json>(json::parse(text, watch));
  } catch (const json::exception& e) {
    fail_user("{} is not JSON: {}", file, shown_text(e.what()));
  }
  document.file = std::move(file);
  return document;
}

JsonField JsonField::operator[](const char* member) const {
  const std::optional<JsonField> field = find(member);
  if (!field) fail("lacks the member \"{}\"", member);
  return *field;
}

std::optional<JsonField> JsonField::find(const char* member) const {
  expect(value_->is_object(), "an object");
  const auto it = value_->find(member);
  if (it == value_->end() || it->is_null()) return std::nullopt;
  return JsonField(*document_, *it);
}

JsonField JsonField::at(size_t item) const {
  expect(value_->is_array(), "a list");
  if (item >= value_->size()) fail("has {} items, expected more than {}", value_->size(), item);
  return {*document_, (*value_)[item]};
}

size_t JsonField::items() const {
  expect(value_->is_array(), "a list");
  return value_->size();
}

int64_t JsonField::whole() const {
  expect(value_->is_number_integer(), "a whole number");
  if (value_->is_number_unsigned() &&
      value_->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    fail("is {}, which does not fit into 64 bits", value_->get<uint64_t>());
  return value_->get<int64_t>();
}

double JsonField::real() const {
  if (value_->is_string()) {
    const auto& text = value_->get_ref<const std::string&>();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  expect(value_->is_number(), "a number");
  return value_->get<double>();
}

bool JsonField::flag() const {
  expect(value_->is_boolean(), "true or false");
  return value_->get<bool>();
}

const std::string& JsonField::text() const {
  expect(value_->is_string(), "a text");
  return value_->get_ref<const std::string&>();
}

const std::string& JsonField::name() const {
  const std::string& name = text();
  if (name.empty() || name.size() > kLongestName)
    fail("is a name of {} bytes, expected 1 to {}", name.size(), kLongestName);
  for (const char c : name)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f')
      fail("is \"{}\", a name with control characters", shown_text(name));
  return name;
}

void JsonField::expect(bool ok, std::string_view what) const {
  if (!ok) fail("is {}, expected {}", kind_of_json(*value_), what);
}

std::string JsonField::path() const {
  std::string path;
  find_path(*document_->root, value_, path);
  return path.empty() ? "its content" : path;
}

}  // namespace dstrain::exported
