// JsonValue: a value of a JSON file with its place, for messages such as "DIR/tokenizer.json: model.merges[3]: expected
// two tokens, found 7".
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dstrain {

class JsonValue {
 public:
  // The caller keeps `value` and `source` alive. `path`: from the file's outermost value; empty for that itself.
  JsonValue(const nlohmann::json& value, const std::string& source, std::string path)
      : value_(&value), source_(&source), path_(std::move(path)) {}

  const nlohmann::json& json() const { return *value_; }
  bool is_null() const;

  // Each throws UserError if the value is of another type.
  const std::string& text() const;
  bool boolean() const;
  uint32_t id() const;       // a token id: an integer from 0, below kMostTokenIds
  std::string type() const;  // the member "type"

  // Returns the member `name` of an object; nothing where it is missing or null.
  std::optional<JsonValue> find(const std::string& name) const;
  // Throws UserError if the member is missing.
  JsonValue at(const std::string& name) const;
  bool flag(const std::string& name, bool otherwise) const;
  // Calls visit with each element of an array.
  void each(const std::function<void(const JsonValue&)>& visit) const;

  // Throws UserError: "SOURCE: PATH: MESSAGE".
  [[noreturn]] void fail(std::string_view message) const;
  // The same: "expected EXPECTED, found 7".
  [[noreturn]] void fail_expected(std::string_view expected) const;
  std::string place() const;  // "SOURCE: PATH"

 private:
  const nlohmann::json* value_;
  const std::string* source_;
  std::string path_;
};

// Ids of tokens are below; a file with larger ones is refused before tables of their size are made.
inline constexpr uint32_t kMostTokenIds = uint32_t{1} << 24;

// Parses a whole JSON text. Throws UserError, which names `source`, if it is not JSON or nested too deeply.
nlohmann::json parse_json_text(std::string_view text, const std::string& source);

}  // namespace dstrain
