// Reads any bytes as a tokenizer.json, which gives a tokenizer or one UserError. A tokenizer then encodes and decodes the
// same bytes as a text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/stream_decoder.h"
#include "runtime/data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const dstrain::Tokenizer tokenizer(text, "tokenizer.json");
    const auto ids = tokenizer.encode(text);
    for (const uint32_t id : ids)
      if (id >= tokenizer.vocabulary_size()) std::abort();
    decode(tokenizer, ids, true);
    std::string scratch;
    dstrain::unicode::Invalid invalid;
    const std::string_view valid = dstrain::unicode::lossy_utf8(text, scratch, invalid);
    std::vector<uint32_t> same;
    std::vector<dstrain::TokenSpan> spans;
    dstrain::TextEncoder(tokenizer).encode_with_spans(valid, same, spans);
    if (same != ids || spans.size() != ids.size()) std::abort();
    for (const dstrain::TokenSpan& span : spans)
      if (span.begin > span.end || span.end > valid.size()) std::abort();
    for (size_t at = 0; at < size; ++at) tokenizer.may_cut(text, static_cast<int64_t>(at));
  } catch (const dstrain::UserError&) {
  } catch (const dstrain::RunError&) {  // a pattern of PCRE2 that takes too many steps
  }
  return 0;
}
