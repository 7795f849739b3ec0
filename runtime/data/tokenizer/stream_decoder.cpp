#include "runtime/data/tokenizer/stream_decoder.h"

#include <utility>

#include "runtime/data/tokenizer/unicode/lossy.h"

namespace dstrain {

std::string StreamDecoder::add(uint32_t id) {
  if (skip_special_ && tokenizer_.is_skipped(id)) return "";
  if (tokenizer_.is_fallback_byte(id)) {
    run_ += tokenizer_.bytes_of(id);
    return "";
  }
  begun_ += take_run();
  begun_ += tokenizer_.bytes_of(id);
  return stripped(take(begun_.size() - unicode::begun_bytes(begun_)));
}

std::string StreamDecoder::finish() {
  begun_ += take_run();
  return stripped(take(begun_.size()));
}

std::string StreamDecoder::take(size_t bytes) {
  std::string scratch;
  unicode::Invalid invalid;
  std::string text(
      unicode::lossy_utf8(std::string_view(begun_).substr(0, bytes), scratch, invalid));
  begun_.erase(0, bytes);
  return text;
}

std::string StreamDecoder::take_run() {
  const std::string run = std::exchange(run_, {});
  std::string scratch;
  unicode::Invalid invalid;
  unicode::lossy_utf8(run, scratch, invalid);
  if (invalid.places == 0) return run;
  std::string text;
  for (size_t byte = 0; byte < run.size(); ++byte) text += "\ufffd";
  return text;
}

std::string StreamDecoder::stripped(const std::string& text) {
  size_t from = 0;
  while (strips_ > 0 && from < text.size()) {
    if (!std::string_view(text).substr(from).starts_with(tokenizer_.strip())) {
      strips_ = 0;
      break;
    }
    from += tokenizer_.strip().size();
    --strips_;
  }
  return text.substr(from);
}

std::string decode(const Tokenizer& tokenizer, std::span<const uint32_t> ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const uint32_t id : ids) text += decoder.add(id);
  return text + decoder.finish();
}

}  // namespace dstrain
