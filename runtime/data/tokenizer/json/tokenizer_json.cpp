#include "runtime/data/tokenizer/json/tokenizer_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/data/tokenizer/json/json_value.h"

namespace dstrain {

void each_stage(const JsonValue& stage, const char* list,
                const std::function<void(const JsonValue&)>& visit) {
  if (stage.type() != "Sequence") return visit(stage);
  stage.at(list).each([&](const JsonValue& inner) { each_stage(inner, list, visit); });
}

std::optional<std::string> literal_pattern(const JsonValue& pattern) {
  const auto text = pattern.find("String");
  if (!text) return std::nullopt;
  if (text->text().empty()) text->fail_expected("a text that is not empty");
  return text->text();
}

TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& source) {
  const nlohmann::json whole = parse_json_text(text, source);
  const JsonValue file(whole, source, "");
  TokenizerSpec spec;
  spec.model = read_model(file.at("model"));
  if (const auto added = file.find("added_tokens"))
    spec.added = read_added_tokens(*added, spec.model);
  if (const auto normalizer = file.find("normalizer")) read_normalizer(*normalizer, spec);
  if (const auto pre_tokenizer = file.find("pre_tokenizer"))
    read_pre_tokenizer(*pre_tokenizer, spec);
  if (const auto post_processor = file.find("post_processor"))
    read_post_processor(*post_processor, spec);
  spec.decoder.byte_level = spec.byte_level;
  if (const auto decoder = file.find("decoder"))
    read_decoder(*decoder, spec);
  else if (!spec.byte_level)
    file.fail("has no \"decoder\", which only byte-level BPE can do without");
  for (const char* const unused : {"truncation", "padding"})
    if (file.find(unused))
      spec.warnings.push_back(
          fmt::format("{}: {} is left out: no text is cut or padded here", file.place(), unused));
  return spec;
}

}  // namespace dstrain
