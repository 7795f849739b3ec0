// Which bytes of a text each token is made of.
#include <algorithm>
#include <utility>

#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/data/tokenizer/unicode/nfc.h"

namespace dstrain {
namespace {

// A part of a normalized text, and where it comes from.
struct NormalizedRun {
  size_t normalized = 0, original = 0;  // where it begins
  bool same = true;                     // byte by byte
};

// Text in normalization form C, with the places that its bytes come from.
class NormalizedText {
 public:
  explicit NormalizedText(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const unicode::NfcSegment segment = unicode::nfc_segment(text, at);
      const std::string_view part = text.substr(at, segment.end - at);
      segment.changes ? changed(part, at) : same(part, at);
      at = segment.end;
    }
    original_size_ = text.size();
  }

  const std::string& text() const { return text_; }

  // Returns the bytes of the original text that the bytes of this one come from.
  TokenSpan original(TokenSpan span) const {
    if (span.begin == span.end) return {place(span.begin).first, place(span.begin).first};
    return {place(span.begin).first, place(span.end - 1).second};
  }

 private:
  void same(std::string_view text, size_t original) {
    if (text.empty()) return;
    runs_.push_back({text_.size(), original, true});
    text_ += text;
  }

  void changed(std::string_view text, size_t original) {
    const std::string composed = unicode::nfc(text);
    if (composed == text) return same(text, original);
    runs_.push_back({text_.size(), original, false});
    text_ += composed;
  }

  // Returns the first byte of the original text that the byte `at` comes from, and the one behind the last.
  std::pair<size_t, size_t> place(size_t at) const {
    const auto behind = std::ranges::upper_bound(runs_, at, {}, &NormalizedRun::normalized);
    if (behind == runs_.begin()) return {0, 0};
    const NormalizedRun& run = *(behind - 1);
    const size_t first = run.original + (at - run.normalized);
    if (run.same) return {first, first + 1};
    return {run.original, behind == runs_.end() ? original_size_ : behind->original};
  }

  std::string text_;
  std::vector<NormalizedRun> runs_;
  size_t original_size_ = 0;
};

}  // namespace

void TextEncoder::encode_with_spans(std::string_view text, std::vector<uint32_t>& ids,
                                    std::vector<TokenSpan>& spans) {
  std::vector<TextPart> parts;
  tokenizer_.raw_.divide(text, parts);
  for (const TextPart& part : parts) {
    const auto offset = static_cast<size_t>(part.text.data() - text.data());
    if (part.id != kNoToken) {
      ids.push_back(part.id);
      spans.push_back({offset, offset + part.text.size()});
      continue;
    }
    std::vector<TokenSpan> inside;
    if (!tokenizer_.nfc_ || unicode::surely_nfc(part.text)) {
      encode_normalized(part.text, ids, &inside);
    } else {
      const NormalizedText normalized(part.text);
      encode_normalized(normalized.text(), ids, &inside);
      for (TokenSpan& span : inside) span = normalized.original(span);
    }
    for (const TokenSpan& span : inside) spans.push_back({offset + span.begin, offset + span.end});
  }
}

// The tokens' bytes are those of the text, in order, but for bytes without a token, which are left out.
void TextEncoder::add_spans(std::string_view text, size_t offset, std::span<const uint32_t> ids,
                            std::vector<TokenSpan>& spans) const {
  size_t at = 0;
  for (const uint32_t id : ids) {
    std::string_view bytes = tokenizer_.bytes_of(id);
    // A space that the pre-tokenizer has put before the text (add_prefix_space) is none of the text.
    const std::string_view rest = text.substr(at);
    if (bytes.starts_with(' ') && !rest.starts_with(' ') && rest.starts_with(bytes.substr(1)))
      bytes.remove_prefix(1);
    while (at < text.size() && text.substr(at, bytes.size()) != bytes) ++at;
    const size_t end = std::min(at + bytes.size(), text.size());
    spans.push_back({offset + at, offset + end});
    at = end;
  }
}

}  // namespace dstrain
