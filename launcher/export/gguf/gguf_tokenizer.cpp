#include "launcher/export/gguf/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "launcher/export/gguf/marked_scores.h"
#include "launcher/export/gguf/pre_tokenizer_name.h"
#include "models/gguf/gguf_names.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/chat/template_directory.h"
#include "runtime/data/tokenizer/json/json_value.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{1} << 29;
constexpr std::string_view kMark = "\u2581";  // SentencePiece's, in the place of a space
constexpr int kBytes = 256;

// The kinds of tokens, by llama.cpp's numbers.
enum class TokenKind : int32_t { normal = 1, unknown, control, user_defined, unused, byte };

// Returns the token that a file of settings names; nothing if none does.
std::optional<uint32_t> named_token(const std::string& directory, const char* name,
                                    const Tokenizer& tokenizer) {
  for (const char* const file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = (fs::path(directory) / file).string();
    std::error_code none;
    if (!fs::exists(path, none)) continue;
    const nlohmann::json json =
        parse_json_text(read_input_file(path, "the tokenizer's settings", kMostBytes), path);
    const auto token = JsonValue(json, path, "").find(name);
    if (!token) continue;
    const JsonValue content = token->json().is_object() ? token->at("content") : *token;
    if (const auto id = tokenizer.id_of(content.text())) return id;
  }
  return std::nullopt;
}

std::string with_spaces(std::string text) {
  for (size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, at + 1))
    text.replace(at, kMark.size(), " ");
  return text;
}

class Fields {
 public:
  Fields(const std::string& directory, int64_t vocabulary)
      : directory_(directory),
        path_((fs::path(directory) / "tokenizer.json").string()),
        tokenizer_(open_tokenizer(directory)),
        text_(read_input_file(path_, "the tokenizer", kMostBytes)),
        json_(parse_json_text(text_, path_)),
        spec_(read_tokenizer_json(text_, path_)),
        vocabulary_(vocabulary) {
    if (tokenizer_->vocabulary_size() > vocabulary)
      fail_user(
          "{}: --format gguf: the tokenizer has {} ids, and the model {}: llama.cpp opens no "
          "model with fewer",
          path_, tokenizer_->vocabulary_size(), vocabulary);
  }

  GgufTokenizer take() {
    add_model();
    add_tokens();
    if (spec_.byte_level)
      add_merges();
    else
      add_scores();
    add_special();
    if (const auto text = chat_template_text(directory_)) add("tokenizer.chat_template", *text);
    return std::move(result_);
  }

 private:
  void add(std::string key, GgufValue value) {
    result_.fields.push_back({std::move(key), std::move(value)});
  }
  void add_ggml(const std::string& name, GgufValue value) {
    add("tokenizer.ggml." + name, std::move(value));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    fail_user(
        "{}: --format gguf: {}: llama.cpp would make other tokens of a text than the model "
        "was trained on; --format hf writes files that keep the tokenizer",
        path_, why);
  }

  void add_model() {
    if (spec_.byte_level) {
      add_ggml("model", std::string(models::kByteLevelTokenizer));
      add_ggml("pre", pre_tokenizer_name(JsonValue(json_, path_, ""), spec_));
      return;
    }
    check_marks();
    add_ggml("model", std::string(models::kMarkedTokenizer));
    add_ggml("pre", std::string("default"));
    const auto prepends = [](const NormalizerStep& step) {
      return std::holds_alternative<NormalizePrepend>(step);
    };
    add_ggml("add_space_prefix", std::ranges::any_of(spec_.normalizer, prepends) ||
                                     std::ranges::any_of(spec_.marks_at_begin, prepends));
  }

  // Throws UserError if texts are not what llama.cpp makes of them: spaces become marks, pieces are not divided, and bytes
  // stand for characters without a token.
  void check_marks() const {
    bool marks = false;
    for (const auto& steps : {spec_.normalizer, spec_.marks_at_begin})
      for (const NormalizerStep& step : steps) {
        const auto* const replace = std::get_if<NormalizeReplace>(&step);
        const auto* const prepend = std::get_if<NormalizePrepend>(&step);
        if ((replace && (replace->pattern != " " || replace->content != kMark)) ||
            (prepend && prepend->text != kMark))
          refuse("its normalizer changes texts otherwise than to SentencePiece's marks");
        marks |= replace != nullptr;
      }
    if (!marks) refuse("its tokens have no SentencePiece's marks for spaces");
    for (const SplitStage& stage : spec_.stages)
      if (stage.kind != SplitStage::Kind::literal ||
          (stage.literal != kMark && stage.literal != " "))
        refuse("its pre-tokenizer divides texts at something else than spaces");
    int bytes = 0;
    for (const auto& [token, id] : spec_.model.vocabulary) bytes += byte_of_token(token) >= 0;
    if (!spec_.model.unknown.byte_fallback || bytes < kBytes)
      refuse("it has no tokens <0x00> to <0xFF> for characters without a token");
  }

  void add_tokens() {
    std::vector<std::string> tokens;
    for (int64_t id = 0; id < vocabulary_; ++id) tokens.push_back(fmt::format("[PAD{}]", id));
    std::vector<int32_t> kinds(tokens.size(), static_cast<int32_t>(TokenKind::unused));
    const auto put = [&](uint32_t id, std::string text, TokenKind kind) {
      tokens[id] = std::move(text);
      kinds[id] = static_cast<int32_t>(kind);
    };
    for (const auto& [token, id] : spec_.model.vocabulary) {
      const bool is_byte = !spec_.byte_level && byte_of_token(token) >= 0;
      const bool is_unknown = !spec_.byte_level && token == spec_.model.unk_token;
      put(id, token,
          is_byte      ? TokenKind::byte
          : is_unknown ? TokenKind::unknown
                       : TokenKind::normal);
    }
    for (const AddedToken& token : spec_.added)
      put(token.id, token.special ? token.content : with_spaces(token.content),
          token.special ? TokenKind::control : TokenKind::user_defined);
    add_ggml("tokens", std::move(tokens));
    add_ggml("token_type", std::move(kinds));
  }

  void add_merges() {
    std::vector<std::string_view> texts(static_cast<size_t>(vocabulary_));
    for (const auto& [token, id] : spec_.model.vocabulary) texts[id] = token;
    std::vector<std::string> merges;
    for (const TokenMerge& merge : spec_.model.merges)
      merges.push_back(fmt::format("{} {}", texts[merge.left], texts[merge.right]));
    add_ggml("merges", std::move(merges));
  }

  void add_scores() {
    MarkedScores scores = scores_of_merges(spec_.model, vocabulary_);
    add_ggml("scores", std::move(scores.scores));
    if (!scores.difference.empty())
      result_.warnings.push_back(fmt::format("{}: {}: some words may become other tokens there",
                                             path_, scores.difference));
  }

  // Returns the only token of what the post-processor puts in front of a text or behind it; nothing if there is none.
  std::optional<uint32_t> only(const std::vector<uint32_t>& ids, std::string_view place) const {
    if (ids.size() > 1) refuse(fmt::format("it puts several tokens {} a text", place));
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  }

  void add_special() {
    const auto first = only(spec_.prefix, "in front of"), last = only(spec_.suffix, "behind");
    std::optional<uint32_t> bos = first, eos = last;
    if (!bos) bos = named_token(directory_, "bos_token", *tokenizer_);
    if (!bos)
      if (const auto token = token_of_id(directory_, "bos_token_id", *tokenizer_))
        bos = tokenizer_->id_of(*token);
    if (!eos)
      if (const auto end = end_of_text(directory_, *tokenizer_)) eos = end->id;
    if (bos) add_ggml("bos_token_id", *bos);
    if (eos) add_ggml("eos_token_id", *eos);
    if (!eos)
      result_.warnings.push_back(
          fmt::format("{}: no token ends a text: llama.cpp takes one of its own for it: give "
                      "eos_token in tokenizer_config.json beside it",
                      path_));
    constexpr std::array<std::pair<const char*, const char*>, 4> others{
        {{"unk_token", "unknown_token_id"},
         {"sep_token", "seperator_token_id"},  // the format's spelling
         {"pad_token", "padding_token_id"},
         {"mask_token", "mask_token_id"}}};
    for (const auto& [name, key] : others)
      if (const auto id = named_token(directory_, name, *tokenizer_)) add_ggml(key, *id);
    add_ggml("add_bos_token", first.has_value());
    add_ggml("add_eos_token", last.has_value());
  }

  std::string directory_, path_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::string text_;  // of tokenizer.json
  nlohmann::json json_;
  TokenizerSpec spec_;
  int64_t vocabulary_;
  GgufTokenizer result_;
};

}  // namespace

GgufTokenizer gguf_tokenizer(const std::string& directory, int64_t vocabulary) {
  if (!directory.empty()) return Fields(directory, vocabulary).take();
  return {{{"tokenizer.ggml.model", std::string("none")}},
          {"the run has no tokenizer (tokenizer.json): llama.cpp's library computes with the token "
           "ids of "
           "this file, and programs that read and write text do not take it"}};
}

}  // namespace dstrain
