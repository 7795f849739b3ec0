#include "runtime/data/chat/template_directory.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/tokenizer/json/json_value.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {
namespace {

constexpr const char* kTemplate = "the chat template";  // in messages
constexpr int64_t kMostTemplate = int64_t{1} << 20, kMostSettings = int64_t{1} << 29;

// The files of a tokenizer's settings, in the order in which they count.
constexpr std::array<const char*, 2> kSettingsFiles{"tokenizer_config.json",
                                                    "special_tokens_map.json"};

nlohmann::json settings_in(const std::string& path) {
  return parse_json_text(read_input_file(path, "the tokenizer's settings", kMostSettings), path);
}

bool is_there(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

bool has(const jinja::Variables& tokens, std::string_view name) {
  return std::ranges::find(tokens, name, &jinja::Variables::value_type::first) != tokens.end();
}

// Adds the special tokens of a file of settings that are not there yet. A name that is null there goes to `none`.
void add_tokens(const JsonValue& settings, jinja::Variables& tokens,
                std::vector<std::string>& none) {
  constexpr std::array<const char*, 7> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                 "pad_token", "cls_token", "mask_token"};
  for (const char* const name : kNames) {
    const auto token = settings.find(name);
    if (!token && settings.json().contains(name)) none.push_back(name);
    if (!token || has(tokens, name)) continue;
    tokens.emplace_back(name,
                        token->json().is_object() ? token->at("content").text() : token->text());
  }
}

// Adds the tokens that begin and end texts, where the template has their names and no file of settings does: tokenizers
// without settings have them from the code of transformers. The model's files then say which ones they are.
void add_tokens_by_id(const std::string& directory, std::string_view text,
                      const Tokenizer& tokenizer, const std::vector<std::string>& none,
                      jinja::Variables& tokens) {
  for (const std::string name : {"bos_token", "eos_token"}) {
    if (has(tokens, name) || std::ranges::find(none, name) != none.end() ||
        text.find(name) == text.npos)
      continue;
    const auto token = token_of_id(directory, name + "_id", tokenizer);
    tokens.emplace_back(
        name, token ? jinja::Value(*token)
                    : jinja::Value::missing(fmt::format(
                          "{}: give it in tokenizer_config.json of {}, null if there is none", name,
                          directory)));
  }
}

// Returns the member "chat_template": a text, or the one named "default" of several.
std::optional<std::string> template_in(const JsonValue& settings) {
  const auto found = settings.find("chat_template");
  if (!found) return std::nullopt;
  if (!found->json().is_array()) return found->text();
  std::optional<std::string> text;
  found->each([&text](const JsonValue& named) {
    if (named.at("name").text() == "default") text = named.at("template").text();
  });
  if (!text)
    found->fail(
        "none of the templates has the name \"default\": give one as a file with --chat_template "
        "FILE of a command, or with dstrain.data.chat_template of a run");
  return text;
}

std::string template_in_file(const std::string& path) {
  return std::string(without_byte_order_mark(read_input_file(path, kTemplate, kMostTemplate)));
}

}  // namespace

std::unique_ptr<const ChatTemplate> open_chat_template(const std::string& directory,
                                                       const std::string& given,
                                                       const Tokenizer& tokenizer,
                                                       std::string_view named_by) {
  const std::filesystem::path folder(directory);
  jinja::Variables tokens;
  std::vector<std::string> none;
  std::optional<std::string> text;
  std::string source;
  for (const char* const name : kSettingsFiles) {
    const std::string path = (folder / name).string();
    if (!is_there(path)) continue;
    const nlohmann::json json = settings_in(path);
    const JsonValue settings(json, path, "");
    add_tokens(settings, tokens, none);
    if (given.empty() && !text) {
      text = template_in(settings);
      source = path + ": chat_template";
    }
  }
  if (!given.empty()) {
    text = named_template(given, named_by);
    source = built_in_template(given).empty() ? given : fmt::format("{} {}", named_by, given);
  } else if (is_there(folder / kTemplateFile)) {
    source = (folder / kTemplateFile).string();
    text = template_in_file(source);
  }
  if (!text) return nullptr;
  add_tokens_by_id(directory, *text, tokenizer, none, tokens);
  return std::make_unique<const ChatTemplate>(*text, source, std::move(tokens));
}

std::optional<std::string> chat_template_text(const std::string& directory) {
  const std::filesystem::path folder(directory);
  if (is_there(folder / kTemplateFile)) return template_in_file((folder / kTemplateFile).string());
  for (const char* const name : kSettingsFiles) {
    const std::string path = (folder / name).string();
    if (!is_there(path)) continue;
    const nlohmann::json json = settings_in(path);
    if (auto text = template_in(JsonValue(json, path, ""))) return text;
  }
  return std::nullopt;
}

std::string named_template(const std::string& given, std::string_view named_by) {
  if (const std::string_view own = built_in_template(given); !own.empty()) return std::string(own);
  if (!is_there(given))
    fail_user(
        "{} {}: there is no such file, and dstrain's own templates are chatml, llama3 and qwen",
        named_by, printable(given));
  return template_in_file(given);
}

std::string chat_template_checksum(const std::string& directory, const std::string& given) {
  const std::filesystem::path path = std::filesystem::path(directory) / kTemplateFile;
  if (given.empty() && !is_there(path)) return "";
  const std::string text =
      given.empty() ? template_in_file(path.string()) : named_template(given, kTemplateKey);
  return fmt::format("{:016x}", checksum_of(text.data(), std::ssize(text)));
}

}  // namespace dstrain
