#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "runtime/data/tokenizer/json/json_value.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

SplitStage stage_of(const JsonValue& pattern, std::vector<std::string>& warnings) {
  const auto expression = pattern.find("Regex");
  if (!expression) pattern.fail_expected("a pattern \"Regex\" or \"String\"");
  SplitStage stage;
  if (const auto published = published_pattern(expression->text())) {
    stage.pattern = *published;
    return stage;
  }
  stage.kind = SplitStage::Kind::foreign;
  stage.foreign = std::make_shared<ForeignPattern>(expression->text(), expression->place());
  warnings.push_back(
      fmt::format("{}: the pattern is none of the published ones: PCRE2 matches it, more slowly, "
                  "and where it knows other letters and digits than the tokenizers library, ids "
                  "differ",
                  expression->place()));
  return stage;
}

// What becomes of a text that a pattern of text matches, by the names of the library.
constexpr std::pair<const char*, LiteralSplit> kBehaviors[] = {
    {"Isolated", LiteralSplit::alone},
    {"MergedWithPrevious", LiteralSplit::ends_piece},
    {"MergedWithNext", LiteralSplit::begins_piece},
    {"Contiguous", LiteralSplit::runs_alone}};

SplitStage literal_stage(const std::string& text, LiteralSplit split) {
  SplitStage stage{.kind = SplitStage::Kind::literal, .foreign = nullptr, .literal = text};
  stage.literal_split = split;
  return stage;
}

void read_split(const JsonValue& split, TokenizerSpec& spec) {
  if (split.flag("invert", false)) split.fail("\"invert\" is not available");
  const JsonValue behavior = split.at("behavior"), pattern = split.at("pattern");
  const auto known = std::ranges::find_if(
      kBehaviors, [&](const auto& entry) { return behavior.text() == entry.first; });
  if (const auto text = literal_pattern(pattern)) {
    if (known == std::end(kBehaviors))
      behavior.fail(fmt::format(
          "the behavior {} is not available: Isolated, MergedWithPrevious, MergedWithNext and "
          "Contiguous are",
          behavior.text()));
    return spec.stages.push_back(literal_stage(*text, known->second));
  }
  if (behavior.text() != "Isolated")
    behavior.fail(
        fmt::format("the behavior {} is not available with a regular expression: Isolated is",
                    behavior.text()));
  spec.stages.push_back(stage_of(pattern, spec.warnings));
}

// Returns prepend_scheme, or what add_prefix_space of older files says in its place.
std::string scheme_of(const JsonValue& metaspace) {
  const auto given = metaspace.find("prepend_scheme");
  const std::string scheme = given ? given->text() : "always";
  if (scheme != "always" && scheme != "first" && scheme != "never")
    given->fail_expected("\"always\", \"first\" or \"never\"");
  if (scheme != "never" && !metaspace.flag("add_prefix_space", true))
    metaspace.fail(
        fmt::format("add_prefix_space is false, and prepend_scheme is \"{}\"{}: expected \"never\"",
                    scheme, given ? "" : " where there is none"));
  return scheme;
}

void read_metaspace(const JsonValue& metaspace, TokenizerSpec& spec) {
  if (!spec.stages.empty() || !spec.marks_elsewhere.empty())
    metaspace.fail("no other pre-tokenizer may stand before Metaspace");
  const JsonValue replacement = metaspace.at("replacement");
  const std::string& mark = replacement.text();
  if (mark.empty() || std::ranges::count_if(mark, [](char byte) {
                        return utf8::starts_character(static_cast<unsigned char>(byte));
                      }) != 1)
    replacement.fail_expected("one character");
  const std::string scheme = scheme_of(metaspace);
  const NormalizeReplace spaces{" ", mark};
  const NormalizePrepend in_front{mark, true};
  spec.marks_at_begin = spec.marks_elsewhere = {spaces};
  if (scheme != "never") spec.marks_at_begin.push_back(in_front);
  if (scheme == "always") spec.marks_elsewhere.push_back(in_front);
  const bool prepends = std::ranges::any_of(spec.normalizer, [](const NormalizerStep& step) {
    return std::holds_alternative<NormalizePrepend>(step);
  });
  if (scheme == "first" && prepends)
    metaspace.fail("prepend_scheme \"first\" is not available beside the normalizer Prepend");
  if (metaspace.flag("split", true))
    spec.stages.push_back(literal_stage(mark, LiteralSplit::begins_piece));
}

void read_byte_level(const JsonValue& stage, TokenizerSpec& spec) {
  spec.byte_level = true;
  if (stage.flag("add_prefix_space", true))
    spec.stages.push_back({.kind = SplitStage::Kind::space, .foreign = nullptr, .literal = {}});
  if (stage.flag("use_regex", true))
    spec.stages.push_back({.kind = SplitStage::Kind::published, .foreign = nullptr, .literal = {}});
}

void read_digits(const JsonValue& stage, TokenizerSpec& spec) {
  const bool each = stage.flag("individual_digits", false);
  spec.stages.push_back({.kind = each ? SplitStage::Kind::each_digit : SplitStage::Kind::digits,
                         .foreign = nullptr,
                         .literal = {}});
}

}  // namespace

void read_pre_tokenizer(const JsonValue& pre_tokenizer, TokenizerSpec& spec) {
  each_stage(pre_tokenizer, "pretokenizers", [&](const JsonValue& stage) {
    const std::string type = stage.type();
    if (spec.byte_level) stage.fail("nothing may follow ByteLevel");
    if (type == "Split") return read_split(stage, spec);
    if (type == "Digits") return read_digits(stage, spec);
    if (type == "ByteLevel") return read_byte_level(stage, spec);
    if (type == "Metaspace") return read_metaspace(stage, spec);
    stage.fail(
        fmt::format("the pre-tokenizer {} is not available: ByteLevel, Metaspace, Split and "
                    "Digits are",
                    type));
  });
}

}  // namespace dstrain
