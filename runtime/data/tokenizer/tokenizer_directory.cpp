#include "runtime/data/tokenizer/tokenizer_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/files/hub_folder.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/tokenizer/json/added_entries.h"
#include "runtime/data/tokenizer/json/json_value.h"

namespace dstrain {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 29;
constexpr const char* kDecoderTokens = "added_tokens_decoder";  // of tokenizer_config.json
constexpr const char* kEndIds = "eos_token_id";
constexpr const char* kWithIds[] = {"generation_config.json", "config.json"};
// What a file of settings is called in messages.
constexpr const char* kSettings = "the tokenizer's settings";

std::string file_in(const std::string& directory, const char* name) {
  return (std::filesystem::path(directory) / name).string();
}

bool exists(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

std::optional<EndOfText> by_name(const JsonValue& file, const std::string& path,
                                 const Tokenizer& tokenizer) {
  const auto token = file.find("eos_token");
  if (!token) return std::nullopt;
  const JsonValue content = token->json().is_object() ? token->at("content") : *token;
  if (content.text().empty()) return std::nullopt;
  const auto id = tokenizer.id_of(content.text());
  if (!id) content.fail(fmt::format("the tokenizer has no token \"{}\"", content.text()));
  return EndOfText{*id, path};
}

// Calls take with each id of the member, such as eos_token_id, which may be a list.
void each_id(const JsonValue& file, const std::string& member,
             const std::function<void(const JsonValue&)>& take) {
  const auto value = file.find(member);
  if (!value) return;
  if (value->json().is_array())
    value->each(take);
  else
    take(*value);
}

// Returns the first id of the member; nothing if it has none.
std::optional<uint32_t> first_id(const JsonValue& file, const std::string& member,
                                 const Tokenizer& tokenizer) {
  std::optional<uint32_t> first;
  each_id(file, member, [&](const JsonValue& id) {
    if (tokenizer.bytes_of(id.id()).empty())
      id.fail(fmt::format("the tokenizer has no token of the id {}", id.id()));
    if (!first) first = id.id();
  });
  return first;
}

std::optional<EndOfText> by_id(const JsonValue& file, const std::string& path,
                               const Tokenizer& tokenizer) {
  const auto id = first_id(file, kEndIds, tokenizer);
  return id ? std::optional(EndOfText{*id, path}) : std::nullopt;
}

using ReadEnd = std::optional<EndOfText> (*)(const JsonValue&, const std::string&,
                                             const Tokenizer&);
// The files that say which token ends a text, the first one that does.
constexpr std::pair<const char*, ReadEnd> kEnds[] = {{"tokenizer_config.json", by_name},
                                                     {"special_tokens_map.json", by_name},
                                                     {kWithIds[0], by_id},
                                                     {kWithIds[1], by_id}};

nlohmann::json settings_in(const std::string& path) {
  return parse_json_text(read_input_file(path, kSettings, kMostBytes), path);
}

// Returns the tokens that the settings add and the tokenizer does not have, in quotation marks. Damaged settings are an
// error where they are needed, and have none here.
std::vector<std::string> unknown_tokens(const std::string& path, const Tokenizer& tokenizer) try {
  const nlohmann::json settings = settings_in(path);
  std::vector<std::string> unknown;
  const auto added = JsonValue(settings, path, "").find(kDecoderTokens);
  if (!added || !added->json().is_object()) return unknown;
  for (const auto& [id, token] : added->json().items()) {
    const JsonValue content = added->at(id).at("content");
    if (!content.text().empty() && !tokenizer.id_of(content.text()))
      unknown.push_back(
          content.json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return unknown;
} catch (const UserError&) {
  return {};
}

void warn_of_unknown_tokens(const std::string& path, Tokenizer& tokenizer) {
  constexpr size_t kMostShown = 5;
  std::vector<std::string> names = unknown_tokens(path, tokenizer);
  if (names.empty()) return;
  std::string others;
  if (names.size() > kMostShown) others = fmt::format(" and {} more", names.size() - kMostShown);
  names.resize(std::min(names.size(), kMostShown));
  tokenizer.add_warning(
      fmt::format("{}: {}: {} lacks the tokens {}{}, which are text like any other here: "
                  "transformers puts them there: "
                  "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
                  path, kDecoderTokens, kTokenizerFile, fmt::join(names, ", "), others));
}

// Returns the text of tokenizer.json. Throws UserError if there is none.
std::string read_tokenizer(const std::string& directory) {
  const std::string path = file_in(directory, kTokenizerFile);
  if (exists(path)) return read_input_file(path, "the tokenizer", kMostBytes);
  const bool other =
      exists(file_in(directory, "tokenizer.model")) || exists(file_in(directory, "vocab.json"));
  if (const std::string advice = hub_folder_advice(directory); !advice.empty())
    fail_user("{}: there is no {}; {}", directory, kTokenizerFile, advice);
  fail_user("{}: there is no {}{}", directory, kTokenizerFile,
            other ? "; transformers makes one: "
                    "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
                  : ", which a Hugging Face directory has its tokenizer in");
}

}  // namespace

bool has_tokenizer(const std::string& directory) {
  return exists(file_in(directory, kTokenizerFile));
}

int64_t ids_of_tokenizer(const std::string& directory, const AddedTexts& added) {
  if (added.empty() && !has_tokenizer(directory)) return 0;
  return ids_with(read_tokenizer(directory), added);
}

std::string tokenizer_text(const std::string& directory, const AddedTexts& added) {
  std::string text = read_tokenizer(directory);
  return added.empty() ? text : with_added_tokens(text, added, file_in(directory, kTokenizerFile));
}

std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& directory,
                                                const AddedTexts& added) {
  auto tokenizer = std::make_unique<Tokenizer>(tokenizer_text(directory, added),
                                               file_in(directory, kTokenizerFile));
  if (const std::string settings = file_in(directory, "tokenizer_config.json"); exists(settings))
    warn_of_unknown_tokens(settings, *tokenizer);
  return tokenizer;
}

std::optional<EndOfText> end_of_text(const std::string& directory, const Tokenizer& tokenizer) {
  for (const auto& [name, read] : kEnds) {
    const std::string path = file_in(directory, name);
    if (!exists(path)) continue;
    const nlohmann::json settings = settings_in(path);
    if (const auto end = read(JsonValue(settings, path, ""), path, tokenizer)) return end;
  }
  for (const char* const usual : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"})
    if (const auto id = tokenizer.id_of(usual); id && tokenizer.is_special(*id))
      return EndOfText{*id, file_in(directory, kTokenizerFile)};
  return std::nullopt;
}

std::optional<std::string> token_of_id(const std::string& directory, const std::string& member,
                                       const Tokenizer& tokenizer) {
  for (const char* const name : kWithIds) {
    const std::string path = file_in(directory, name);
    if (!exists(path)) continue;
    const nlohmann::json settings = settings_in(path);
    if (const auto id = first_id(JsonValue(settings, path, ""), member, tokenizer))
      return std::string(tokenizer.bytes_of(*id));
  }
  return std::nullopt;
}

std::vector<uint32_t> stop_ids(const std::string& directory) {
  std::vector<uint32_t> ids;
  for (const char* const name : kWithIds) {
    const std::string path = file_in(directory, name);
    if (!ids.empty() || !exists(path)) continue;
    const nlohmann::json settings = settings_in(path);
    each_id(JsonValue(settings, path, ""), kEndIds,
            [&ids](const JsonValue& id) { ids.push_back(id.id()); });
  }
  return ids;
}

std::string tokenizer_checksum(const std::string& directory, bool settings,
                               const AddedTexts& added) {
  std::vector<uint64_t> sums;
  const auto add = [&sums](const std::string& bytes) {
    sums.push_back(checksum_of(bytes.data(), std::ssize(bytes)));
  };
  add(tokenizer_text(directory, added));
  if (settings)
    for (const auto& [name, read] : kEnds) {
      if (exists(file_in(directory, name)))
        add(read_input_file(file_in(directory, name), kSettings, kMostBytes));
      else
        sums.push_back(0);
    }
  return fmt::format("{:016x}", checksum_of(sums.data(), static_cast<int64_t>(8 * sums.size())));
}

}  // namespace dstrain
