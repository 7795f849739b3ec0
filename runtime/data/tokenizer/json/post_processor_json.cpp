#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/data/tokenizer/json/json_value.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"

namespace dstrain {
namespace {

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

}  // namespace

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

}  // namespace dstrain
