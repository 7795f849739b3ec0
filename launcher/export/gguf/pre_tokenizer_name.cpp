#include "launcher/export/gguf/pre_tokenizer_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <variant>
#include <vector>

#include "models/gguf/gguf_names.h"
#include "runtime/data/tokenizer/json/json_value.h"

namespace dstrain {
namespace {

// The regular expressions by which Mistral's and OpenAI's later tokenizers divide texts.
constexpr std::string_view
    kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
              R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
              R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    kGpt4o = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
             R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
             R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
             R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)"
             R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kDigit = "digit";  // a stage, beside regular expressions

// What llama.cpp does by a name: the stages, and whether pieces that are tokens are not merged.
struct Known {
  std::string_view name;
  std::array<std::string_view, 2> stages;
  bool ignores_merges;
};

const std::array<Known, 8>& known_names() {
  static const std::array<Known, 8> names{{
      {"gpt-2", {expression_of(Pattern::gpt2)}, false},
      {"llama-bpe", {expression_of(Pattern::llama3)}, true},
      {"smaug-bpe", {expression_of(Pattern::llama3)}, false},
      {models::kSingleDigits, {expression_of(Pattern::qwen2)}, false},
      {"qwen35", {expression_of(Pattern::qwen3_5)}, false},
      {"smollm", {kDigit, expression_of(Pattern::gpt2)}, false},
      {"tekken", {kTekken}, true},
      {"gpt-4o", {kGpt4o}, false},
  }};
  return names;
}

// Returns the expressions of the pre-tokenizers Split, in order.
std::vector<std::string> expressions_in(const JsonValue& file) {
  std::vector<std::string> list;
  const auto pre_tokenizer = file.find("pre_tokenizer");
  if (!pre_tokenizer) return list;
  each_stage(*pre_tokenizer, "pretokenizers", [&list](const JsonValue& stage) {
    const auto pattern = stage.find("pattern");
    if (const auto expression = pattern ? pattern->find("Regex") : std::nullopt)
      list.push_back(expression->text());
  });
  return list;
}

// Returns the stages as in Known; nothing if one is none of them.
std::optional<std::vector<std::string>> stages_of(const JsonValue& file,
                                                  const TokenizerSpec& spec) {
  std::vector<std::string> stages;
  const std::vector<std::string> expressions = expressions_in(file);
  for (size_t next = 0; const SplitStage& stage : spec.stages) switch (stage.kind) {
      case SplitStage::Kind::each_digit:
        stages.emplace_back(kDigit);
        break;
      case SplitStage::Kind::published:
        stages.emplace_back(expression_of(stage.pattern));
        if (next < expressions.size() && expressions[next] == stages.back()) ++next;
        break;
      case SplitStage::Kind::foreign:
        if (next == expressions.size()) return std::nullopt;
        stages.push_back(expressions[next++]);
        break;
      case SplitStage::Kind::digits:
      case SplitStage::Kind::space:
      case SplitStage::Kind::literal:
        return std::nullopt;
    }
  return stages;
}

bool is_nfc(const NormalizerStep& step) {
  return std::holds_alternative<NormalizeNfc>(step);
}

}  // namespace

std::string pre_tokenizer_name(const JsonValue& file, const TokenizerSpec& spec) {
  constexpr std::string_view advice =
      "llama.cpp would make other tokens of a text than the model was trained on; --format hf "
      "writes files that keep the tokenizer";
  // llama.cpp changes no characters. Texts are in normalization form C as a rule.
  if (!std::ranges::all_of(spec.normalizer, is_nfc))
    file.fail(fmt::format("--format gguf: llama.cpp has no normalizer of byte-level tokenizers: {}",
                          advice));
  if (const auto stages = stages_of(file, spec))
    for (const Known& known : known_names()) {
      const std::vector<std::string_view> wanted(
          known.stages.begin(), std::ranges::find(known.stages, std::string_view()));
      if (std::ranges::equal(*stages, wanted) && known.ignores_merges == spec.model.ignore_merges)
        return std::string(known.name);
    }
  file.fail(fmt::format(
      "--format gguf: llama.cpp has none of the pre-tokenizers that dstrain knows by name as this "
      "one is (pre_tokenizer{}): {}",
      spec.model.ignore_merges ? ", with ignore_merges" : "", advice));
}

}  // namespace dstrain
