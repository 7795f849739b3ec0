#include "runtime/data/tokenizer/tokenizer_directory.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/tokenizer/json/json_value.h"

namespace dstrain {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 29;
constexpr const char* kFile = "tokenizer.json";

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

std::optional<EndOfText> by_id(const JsonValue& file, const std::string& path,
                               const Tokenizer& tokenizer) {
  const auto value = file.find("eos_token_id");
  if (!value) return std::nullopt;
  std::optional<EndOfText> end;
  const auto take = [&](const JsonValue& id) {
    if (tokenizer.bytes_of(id.id()).empty())
      id.fail(fmt::format("the tokenizer has no token of the id {}", id.id()));
    if (!end) end = EndOfText{id.id(), path};
  };
  if (value->json().is_array())
    value->each(take);
  else
    take(*value);
  return end;
}

}  // namespace

bool has_tokenizer(const std::string& directory) {
  return exists(file_in(directory, kFile));
}

std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& directory) {
  const std::string path = file_in(directory, kFile);
  if (!exists(path)) {
    const bool other =
        exists(file_in(directory, "tokenizer.model")) || exists(file_in(directory, "vocab.json"));
    fail_user(
        "{}: there is no {}{}", directory, kFile,
        other ? "; transformers makes one: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
              : ", which a Hugging Face directory has its tokenizer in");
  }
  return std::make_unique<const Tokenizer>(read_input_file(path, "the tokenizer", kMostBytes),
                                           path);
}

std::optional<EndOfText> end_of_text(const std::string& directory, const Tokenizer& tokenizer) {
  using Read = std::optional<EndOfText> (*)(const JsonValue&, const std::string&, const Tokenizer&);
  constexpr std::pair<const char*, Read> kFiles[] = {{"tokenizer_config.json", by_name},
                                                     {"special_tokens_map.json", by_name},
                                                     {"generation_config.json", by_id},
                                                     {"config.json", by_id}};
  for (const auto& [name, read] : kFiles) {
    const std::string path = file_in(directory, name);
    if (!exists(path)) continue;
    const nlohmann::json settings =
        parse_json_text(read_input_file(path, "the tokenizer's settings", kMostBytes), path);
    if (const auto end = read(JsonValue(settings, path, ""), path, tokenizer)) return end;
  }
  for (const char* const usual : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"})
    if (const auto id = tokenizer.id_of(usual); id && tokenizer.is_special(*id))
      return EndOfText{*id, file_in(directory, kFile)};
  return std::nullopt;
}

}  // namespace dstrain
