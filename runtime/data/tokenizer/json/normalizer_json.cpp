#include <fmt/format.h>

#include "runtime/data/tokenizer/json/json_value.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"

namespace dstrain {

void read_normalizer(const JsonValue& normalizer, TokenizerSpec& spec) {
  each_stage(normalizer, "normalizers", [&spec](const JsonValue& stage) {
    const std::string type = stage.type();
    if (type == "NFC") {
      spec.normalizer.emplace_back(NormalizeNfc{});
    } else if (type == "Prepend") {
      const JsonValue text = stage.at("prepend");
      if (text.text().empty()) text.fail_expected("a text that is not empty");
      spec.normalizer.emplace_back(NormalizePrepend{text.text()});
    } else if (type == "Replace") {
      const JsonValue pattern = stage.at("pattern"), content = stage.at("content");
      const auto text = literal_pattern(pattern);
      if (!text) pattern.fail("only patterns \"String\" are available in a normalizer");
      if (content.text().empty())
        content.fail("a normalizer that takes text away is not available");
      spec.normalizer.emplace_back(NormalizeReplace{*text, content.text()});
    } else {
      stage.fail(
          fmt::format("the normalizer {} is not available: NFC, Prepend and Replace are", type));
    }
  });
}

}  // namespace dstrain
