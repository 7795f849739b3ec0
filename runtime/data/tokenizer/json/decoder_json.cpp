#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/data/tokenizer/json/json_value.h"
#include "runtime/data/tokenizer/json/tokenizer_json.h"

namespace dstrain {
namespace {

// The stages of a decoder of characters' tokens, in the only order that is read.
enum class Part { replace, byte_fallback, fuse, strip };

Part part_of(const JsonValue& stage) {
  const std::string type = stage.type();
  if (type == "Replace") return Part::replace;
  if (type == "ByteFallback") return Part::byte_fallback;
  if (type == "Fuse") return Part::fuse;
  if (type == "Strip") return Part::strip;
  stage.fail(
      fmt::format("the decoder {} is not available here: Replace, ByteFallback, Fuse and "
                  "Strip are",
                  type));
}

int64_t count_of(const JsonValue& stage, const char* name) {
  const JsonValue count = stage.at(name);
  if (!count.json().is_number_unsigned() || count.json().get<uint64_t>() > 1000)
    count.fail_expected("an integer from 0 to 1000");
  return count.json().get<int64_t>();
}

void read_strip(const JsonValue& strip, DecoderSpec& decoder) {
  if (count_of(strip, "stop") != 0)
    strip.at("stop").fail("only the beginning of a text can be stripped: expected 0");
  const JsonValue content = strip.at("content");
  if (content.text().empty()) content.fail_expected("one character");
  decoder.strip = content.text();
  decoder.strips = count_of(strip, "start");
}

void read_characters_decoder(const JsonValue& decoder, DecoderSpec& spec) {
  std::optional<Part> last;
  each_stage(decoder, "decoders", [&](const JsonValue& stage) {
    const Part part = part_of(stage);
    const bool follows = !last || part > *last || (part == Part::replace && last == part);
    if (!follows || (part == Part::strip && last != Part::fuse))
      stage.fail("the order of decoders is not available: Replace, ByteFallback, Fuse, Strip is");
    last = part;
    if (part == Part::byte_fallback) spec.byte_fallback = true;
    if (part == Part::strip) read_strip(stage, spec);
    if (part != Part::replace) return;
    const JsonValue pattern = stage.at("pattern");
    const auto text = literal_pattern(pattern);
    if (!text) pattern.fail("only patterns \"String\" are available in a decoder");
    spec.replacements.push_back({*text, stage.at("content").text()});
  });
}

}  // namespace

void read_decoder(const JsonValue& decoder, TokenizerSpec& spec) {
  if (!spec.byte_level) {
    each_stage(decoder, "decoders", [](const JsonValue& stage) {
      if (stage.type() == "ByteLevel")
        stage.fail("the decoder ByteLevel is not available where pre_tokenizer has no ByteLevel");
    });
    return read_characters_decoder(decoder, spec.decoder);
  }
  each_stage(decoder, "decoders", [](const JsonValue& stage) {
    if (stage.type() != "ByteLevel")
      stage.fail(fmt::format("the decoder {} is not available for byte-level BPE: ByteLevel is",
                             stage.type()));
  });
}

}  // namespace dstrain
