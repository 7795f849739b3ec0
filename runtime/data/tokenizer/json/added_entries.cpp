#include "runtime/data/tokenizer/json/added_entries.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/json/json_value.h"

namespace dstrain {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kList = "added_tokens";

// Takes the ids of a tokenizer.json from its values as they are read: a tree of a large vocabulary takes longer to make than
// a start may.
class IdReader : public nlohmann::json_sax<Json> {
 public:
  explicit IdReader(std::span<const std::string> wanted) : wanted_(wanted.begin(), wanted.end()) {}

  int64_t largest() const { return largest_; }
  // Returns the id of a wanted token; nothing if the file has none of it.
  std::optional<int64_t> id_of(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  bool is_added(const std::string& token) const { return added_.contains(token); }

  bool key(string_t& name) override {
    if (depth_ == 1) section_ = name;
    if (depth_ == 2) member_ = name;
    if (depth_ == 3) entry_ = name;
    return true;
  }
  bool string(string_t& text) override {
    if (in_list() && entry_ == "content") content_ = text;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value >= kMostTokenIds) return true;  // the tokenizer is refused
    const auto id = static_cast<int64_t>(value);
    if (in_list() && entry_ == "id") id_ = id;
    if (depth_ == 3 && section_ == "model" && member_ == "vocab") take(entry_, id);
    return true;
  }
  bool start_object(size_t) override {
    ++depth_;
    if (in_list()) {
      content_.clear();
      id_.reset();
    }
    return true;
  }
  bool end_object() override {
    if (in_list() && id_) {
      take(content_, *id_);
      if (wanted_.contains(content_)) added_.insert(content_);
    }
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool in_list() const { return depth_ == 3 && section_ == kList; }
  void take(const std::string& token, int64_t id) {
    largest_ = std::max(largest_, id);
    if (wanted_.contains(token)) ids_.emplace(token, id);
  }

  std::unordered_set<std::string> wanted_, added_;
  std::unordered_map<std::string, int64_t> ids_;
  int64_t largest_ = -1;
  int depth_ = 0;
  // The keys on the way to the value that is read.
  std::string section_, member_, entry_;
  // What is known so far of the entry of added_tokens that is read.
  std::string content_;
  std::optional<int64_t> id_;
};

struct NewEntries {
  std::vector<std::pair<std::string, int64_t>> tokens;  // with their ids
  int64_t largest = -1;                                 // of all ids then
};

// Returns the tokens that are no added tokens yet; nothing if the text is no JSON object.
std::optional<NewEntries> new_entries(std::string_view json, std::span<const std::string> tokens) {
  IdReader reader(tokens);
  if (!Json::sax_parse(json, &reader)) return std::nullopt;
  NewEntries entries{.tokens = {}, .largest = reader.largest()};
  std::unordered_set<std::string> seen;
  for (const std::string& token : tokens) {
    if (reader.is_added(token) || !seen.insert(token).second) continue;
    const int64_t id = reader.id_of(token).value_or(entries.largest + 1);
    entries.largest = std::max(entries.largest, id);
    entries.tokens.emplace_back(token, id);
  }
  return entries;
}

// Returns the place behind the last entry of the list of added tokens in a JSON object; npos: it has no such list.
size_t end_of_list(std::string_view json) {
  bool in_text = false;
  int depth = 0;
  size_t text = 0;  // where the last text begins
  std::string_view key;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (in_text) {
      if (c == '\\') ++at;
      if (c != '"') continue;
      in_text = false;
      if (depth == 1) key = json.substr(text, at - text);
    } else if (c == '"') {
      in_text = true;
      text = at + 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth == 1 && c == ']' && key == kList) return at;
    }
  }
  return std::string_view::npos;
}

std::string entry_text(const std::string& token, int64_t id) {
  return fmt::format(
      "{{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": "
      "false, "
      "\"normalized\": false, \"special\": false}}",
      id, Json(token).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

int64_t ids_with(std::string_view json, std::span<const std::string> tokens) {
  const std::optional<NewEntries> entries = new_entries(json, tokens);
  return entries ? entries->largest + 1 : 0;
}

std::string with_added_tokens(std::string_view json, std::span<const std::string> tokens,
                              const std::string& source) {
  const std::optional<NewEntries> entries = new_entries(json, tokens);
  if (!entries || json.find('{') == std::string_view::npos)
    fail_user("{}: it is no JSON object, as a tokenizer.json is", source);
  std::string list;
  for (const auto& [token, id] : entries->tokens)
    list += (list.empty() ? "" : ",\n    ") + entry_text(token, id);
  std::string text(json);
  if (list.empty()) return text;
  const size_t end = end_of_list(json);
  if (end == std::string_view::npos)
    return text.insert(json.find('{') + 1, fmt::format("\n  \"{}\": [\n    {}\n  ],", kList, list));
  const size_t last = json.find_last_not_of(" \t\r\n", end - 1);
  const bool first = json[last] == '[';
  return text.insert(last + 1, fmt::format("{}\n    {}", first ? "" : ",", list));
}

}  // namespace dstrain
