#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/data/tokenizer/json/json_value.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"

namespace dstrain {
namespace {

// Calls visit with a stage, or with each of those that a Sequence has. `list`: the name of a Sequence's member.
void each_stage(const JsonValue& stage, const char* list,
                const std::function<void(const JsonValue&)>& visit) {
  if (stage.type() != "Sequence") return visit(stage);
  stage.at(list).each([&](const JsonValue& inner) { each_stage(inner, list, visit); });
}

// Refuses a stage that SentencePiece's tokenizers have, such as those of Llama 2 and Mistral: one that puts a mark of theirs
// where a word begins.
void refuse_sentencepiece(const JsonValue& stage) {
  constexpr std::string_view mark = "\u2581";
  const auto has_mark = [&](const char* member) {
    const auto text = stage.find(member);
    return text && text->json().is_string() && text->text() == mark;
  };
  if (stage.type() == "Metaspace" || has_mark("prepend") || has_mark("content"))
    stage.fail(fmt::format("this is a SentencePiece BPE; {}", kOtherTokenizer));
}

bool reads_nfc(const JsonValue& normalizer) {
  bool nfc = false;
  each_stage(normalizer, "normalizers", [&nfc](const JsonValue& stage) {
    refuse_sentencepiece(stage);
    if (stage.type() != "NFC")
      stage.fail(fmt::format("the normalizer {} is not available: NFC is", stage.type()));
    nfc = true;
  });
  return nfc;
}

SplitStage stage_of(const JsonValue& pattern, std::vector<std::string>& warnings) {
  const auto expression = pattern.find("Regex");
  if (!expression) pattern.fail("only patterns \"Regex\" are available");
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

void read_split(const JsonValue& split, TokenizerSpec& spec) {
  const JsonValue behavior = split.at("behavior");
  if (behavior.text() != "Isolated")
    behavior.fail(fmt::format("the behavior {} is not available: Isolated is", behavior.text()));
  if (split.flag("invert", false)) split.fail("\"invert\" is not available");
  spec.stages.push_back(stage_of(split.at("pattern"), spec.warnings));
}

void read_pre_tokenizer(const JsonValue& pre_tokenizer, TokenizerSpec& spec) {
  bool to_letters = false;
  each_stage(pre_tokenizer, "pretokenizers", [&](const JsonValue& stage) {
    const std::string type = stage.type();
    refuse_sentencepiece(stage);
    if (to_letters) stage.fail("nothing may follow ByteLevel");
    if (type == "Split") {
      read_split(stage, spec);
    } else if (type == "Digits") {
      const bool each = stage.flag("individual_digits", false);
      spec.stages.push_back({.kind = each ? SplitStage::Kind::each_digit : SplitStage::Kind::digits,
                             .foreign = nullptr});
    } else if (type == "ByteLevel") {
      to_letters = true;
      if (stage.flag("add_prefix_space", true))
        spec.stages.push_back({.kind = SplitStage::Kind::space, .foreign = nullptr});
      if (stage.flag("use_regex", true))
        spec.stages.push_back({.kind = SplitStage::Kind::published, .foreign = nullptr});
    } else {
      stage.fail(fmt::format(
          "the pre-tokenizer {} is not available: ByteLevel, Split and Digits are", type));
    }
  });
  if (!to_letters) pre_tokenizer.fail("there is no ByteLevel: dstrain reads byte-level BPE only");
}

// Puts what a template has in front of the text, and behind it, around what stands there already.
void read_template(const JsonValue& single, const JsonValue& stage, TokenizerSpec& spec) {
  std::vector<uint32_t> before, behind;
  bool text = false;
  single.each([&](const JsonValue& piece) {
    if (piece.find("Sequence")) {
      if (text) piece.fail("the text stands in the template twice, which is not available");
      text = true;
      return;
    }
    const JsonValue name = piece.at("SpecialToken").at("id");
    const auto ids = stage.at("special_tokens").find(name.text());
    if (!ids) name.fail(fmt::format("special_tokens has no \"{}\"", name.text()));
    ids->at("ids").each([&](const JsonValue& id) { (text ? behind : before).push_back(id.id()); });
  });
  if (!text) single.fail("the template has no text");
  spec.prefix.insert(spec.prefix.begin(), before.begin(), before.end());
  spec.suffix.insert(spec.suffix.end(), behind.begin(), behind.end());
}

// Returns the id of a pair [token, id].
uint32_t paired_id(const JsonValue& pair) {
  uint32_t id = kNoToken;
  int number = 0;
  pair.each([&](const JsonValue& value) {
    if (number++ == 1) id = value.id();
  });
  if (number != 2) pair.fail_expected("a token and its id");
  return id;
}

void read_post_processor(const JsonValue& post_processor, TokenizerSpec& spec) {
  each_stage(post_processor, "processors", [&spec](const JsonValue& stage) {
    const std::string type = stage.type();
    if (type == "ByteLevel") return;  // changes offsets only
    if (type == "TemplateProcessing") return read_template(stage.at("single"), stage, spec);
    if (type != "RobertaProcessing" && type != "BertProcessing")
      stage.fail(
          fmt::format("the post-processor {} is not available: TemplateProcessing, ByteLevel, "
                      "RobertaProcessing and BertProcessing "
                      "are",
                      type));
    spec.prefix.insert(spec.prefix.begin(), paired_id(stage.at("cls")));
    spec.suffix.push_back(paired_id(stage.at("sep")));
  });
}

void check_decoder(const JsonValue& decoder) {
  each_stage(decoder, "decoders", [](const JsonValue& stage) {
    if (stage.type() != "ByteLevel")
      stage.fail(fmt::format("the decoder {} is not available: ByteLevel is", stage.type()));
  });
}

}  // namespace

void read_pipeline(const JsonValue& file, TokenizerSpec& spec) {
  if (const auto normalizer = file.find("normalizer")) spec.nfc = reads_nfc(*normalizer);
  const auto pre_tokenizer = file.find("pre_tokenizer");
  if (!pre_tokenizer)
    file.fail("there is no pre_tokenizer, and so no ByteLevel: dstrain reads byte-level BPE only");
  read_pre_tokenizer(*pre_tokenizer, spec);
  if (const auto post_processor = file.find("post_processor"))
    read_post_processor(*post_processor, spec);
  if (const auto decoder = file.find("decoder")) check_decoder(*decoder);
  for (const char* const unused : {"truncation", "padding"})
    if (file.find(unused))
      spec.warnings.push_back(
          fmt::format("{}: {} is left out: no text is cut or padded here", file.place(), unused));
}

TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& source) {
  const nlohmann::json whole = parse_json_text(text, source);
  const JsonValue file(whole, source, "");
  TokenizerSpec spec;
  spec.model = read_model(file.at("model"));
  if (const auto added = file.find("added_tokens"))
    spec.added = read_added_tokens(*added, spec.model);
  read_pipeline(file, spec);
  return spec;
}

}  // namespace dstrain
