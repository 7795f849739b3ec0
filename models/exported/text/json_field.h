// JsonField: a value of a JSON text with checked access. Errors are UserErrors that say in which file and at which path of it
// what was found; the path is looked for when an error is made.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain::exported {

// A JSON text that was read, and the file that it is from.
struct JsonDocument {
  std::unique_ptr<const nlohmann::json> root;
  std::string file;  // "model.pt2: models/model.json"
};

// Reads a JSON text. Throws UserError if it is none, is nested deeply, or has more values than an exported model of any
// size. Members of the name `left_out` are dropped.
JsonDocument read_json(std::string_view text, std::string file, std::string_view left_out = {});

// The caller must keep the document.
class JsonField {
 public:
  explicit JsonField(const JsonDocument& document) : JsonField(document, *document.root) {}

  // Returns the member. Throws UserError if this is not an object or lacks it.
  JsonField operator[](const char* member) const;
  // Returns the member, or nothing if it is absent or null.
  std::optional<JsonField> find(const char* member) const;
  JsonField at(size_t item) const;  // of a list
  size_t items() const;             // of a list
  const std::string& file() const { return document_->file; }
  bool is_text() const { return value_->is_string(); }
  bool is_object() const { return value_->is_object(); }

  int64_t whole() const;
  double real() const;  // also "Infinity", "-Infinity", "NaN", as PyTorch writes them
  bool flag() const;
  const std::string& text() const;
  // Returns a text that names something: not empty, at most 1000 bytes, without control characters.
  const std::string& name() const;

  // Calls `visit(const std::string&, JsonField)` for each member of an object.
  template <class Visit>
  void for_each_member(Visit visit) const {
    expect(value_->is_object(), "an object");
    for (const auto& [key, value] : value_->items()) visit(key, JsonField(*document_, value));
  }

  // Throws UserError with the file, the path of this value and the message.
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError(fmt::format("{}: {} {}", document_->file, path(),
                                fmt::format(format, std::forward<Args>(args)...)));
  }

 private:
  JsonField(const JsonDocument& document, const nlohmann::json& value)
      : document_(&document), value_(&value) {}

  void expect(bool ok, std::string_view what) const;
  std::string path() const;

  const JsonDocument* document_;
  const nlohmann::json* value_;
};

}  // namespace dstrain::exported
