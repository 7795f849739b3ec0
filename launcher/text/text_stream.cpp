#include "launcher/text/text_stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace dstrain {

TextStream::TextStream(const Vocabulary& vocabulary, const Tokenizer* tokenizer,
                       std::span<const std::string> stops)
    : vocabulary_(vocabulary), stops_(stops) {
  if (tokenizer) decoder_.emplace(*tokenizer);
}

std::string TextStream::text_of(int32_t id) {
  if (decoder_) return decoder_->add(static_cast<uint32_t>(id));
  if (vocabulary_.format != DataFormat::tokens) return vocabulary_.decode(id);
  return fmt::format("{}{}", std::exchange(first_, false) ? "" : ",", id);
}

std::string TextStream::prompt(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += text_of(id);
  return text;
}

std::string TextStream::take_certain(bool at_end) {
  size_t stop = std::string::npos;
  for (const std::string& text : stops_) stop = std::min(stop, held_.find(text));
  if (stop != std::string::npos) {
    stopped_ = true;
    held_.resize(stop);
    return std::exchange(held_, {});
  }
  size_t begun = 0;  // bytes at the end that may begin a stop
  if (!at_end)
    for (const std::string& text : stops_)
      for (size_t n = std::min(text.size() - 1, held_.size()); n > begun; --n)
        if (held_.ends_with(std::string_view(text).substr(0, n))) begun = n;
  std::string certain = held_.substr(0, held_.size() - begun);
  held_.erase(0, certain.size());
  return certain;
}

std::string TextStream::add(int32_t id) {
  held_ += text_of(id);
  return take_certain(false);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  if (decoder_) held_ += decoder_->finish();
  return take_certain(true);
}

}  // namespace dstrain
