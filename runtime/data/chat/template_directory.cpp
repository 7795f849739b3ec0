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

namespace dstrain {
namespace {

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kTemplate = "the chat template";  // in messages
constexpr int64_t kMostTemplate = int64_t{1} << 20, kMostSettings = int64_t{1} << 29;

bool is_there(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

// Adds the special tokens of a file of settings that are not there yet.
void add_tokens(const JsonValue& settings, jinja::Variables& tokens) {
  constexpr std::array<const char*, 7> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                 "pad_token", "cls_token", "mask_token"};
  for (const char* const name : kNames) {
    const auto token = settings.find(name);
    const bool known =
        std::ranges::find(tokens, name, &jinja::Variables::value_type::first) != tokens.end();
    if (!token || known) continue;
    tokens.emplace_back(name,
                        token->json().is_object() ? token->at("content").text() : token->text());
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
        "FILE");
  return text;
}

}  // namespace

std::unique_ptr<const ChatTemplate> open_chat_template(const std::string& directory,
                                                       const std::string& given) {
  const std::filesystem::path folder(directory);
  jinja::Variables tokens;
  std::optional<std::string> text;
  std::string source;
  for (const char* const name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = (folder / name).string();
    if (!is_there(path)) continue;
    const nlohmann::json json =
        parse_json_text(read_input_file(path, "the tokenizer's settings", kMostSettings), path);
    const JsonValue settings(json, path, "");
    add_tokens(settings, tokens);
    if (given.empty() && !text) {
      text = template_in(settings);
      source = path + ": chat_template";
    }
  }
  std::string file = given;
  if (given.empty() && is_there(folder / kTemplateFile)) file = (folder / kTemplateFile).string();
  if (const std::string_view own = built_in_template(given); !own.empty()) {
    text = own;
    source = "--chat_template " + given;
  } else if (!file.empty()) {
    if (!is_there(file))
      fail_user(
          "--chat_template {}: there is no such file, and dstrain's own templates are chatml, "
          "llama3 and qwen",
          printable(given));
    text = without_byte_order_mark(read_input_file(file, kTemplate, kMostTemplate));
    source = file;
  }
  if (!text) return nullptr;
  return std::make_unique<const ChatTemplate>(*text, source, std::move(tokens));
}

std::string chat_template_checksum(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::path(directory) / kTemplateFile;
  if (!is_there(path)) return "";
  const std::string text = read_input_file(path.string(), kTemplate, kMostTemplate);
  return fmt::format("{:016x}", checksum_of(text.data(), std::ssize(text)));
}

}  // namespace dstrain
