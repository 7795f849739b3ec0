#include "runtime/data/tokenizer/stream_decoder.h"

#include "runtime/data/tokenizer/unicode/lossy.h"

namespace dstrain {

std::string StreamDecoder::add(uint32_t id) {
  if (tokenizer_.is_special(id)) return "";
  begun_ += tokenizer_.bytes_of(id);
  return take(begun_.size() - unicode::begun_bytes(begun_));
}

std::string StreamDecoder::finish() {
  return take(begun_.size());
}

std::string StreamDecoder::take(size_t bytes) {
  std::string scratch;
  unicode::Invalid invalid;
  std::string text(
      unicode::lossy_utf8(std::string_view(begun_).substr(0, bytes), scratch, invalid));
  begun_.erase(0, bytes);
  return text;
}

}  // namespace dstrain
