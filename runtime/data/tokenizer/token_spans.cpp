// Which bytes of a text each token is made of.
#include <algorithm>

#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {
namespace {

// Makes the spans from `first` on, of a changed text, those of the original one. `maps`: of the changes, in order.
void map_back(const std::vector<TextMap>& maps, size_t first, std::vector<TokenSpan>& spans) {
  for (auto map = maps.rbegin(); map != maps.rend(); ++map)
    for (size_t i = first; i < spans.size(); ++i) spans[i] = map->original(spans[i]);
}

void shift(size_t offset, size_t first, std::vector<TokenSpan>& spans) {
  for (size_t i = first; i < spans.size(); ++i)
    spans[i] = {offset + spans[i].begin, offset + spans[i].end};
}

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
    const size_t first = spans.size();
    std::string scratch;
    std::vector<TextMap> maps;
    const std::string_view normalized = tokenizer_.normalizer_.apply(part.text, scratch, &maps);
    encode_normalized(normalized, offset == 0, ids, &spans);
    map_back(maps, first, spans);
    shift(offset, first, spans);
  }
}

void TextEncoder::encode_normalized(std::string_view text, bool at_begin,
                                    std::vector<uint32_t>& ids, std::vector<TokenSpan>* spans) {
  if (tokenizer_.in_normalized_.empty()) return encode_text(text, at_begin, ids, spans);
  std::vector<TextPart> parts;
  tokenizer_.in_normalized_.divide(text, parts);
  for (const TextPart& part : parts) {
    const auto offset = static_cast<size_t>(part.text.data() - text.data());
    const size_t first = spans ? spans->size() : 0;
    if (part.id == kNoToken) {
      encode_text(part.text, at_begin && offset == 0, ids, spans);
    } else {
      ids.push_back(part.id);
      if (spans) spans->push_back({0, part.text.size()});
    }
    if (spans) shift(offset, first, *spans);
  }
}

void TextEncoder::encode_text(std::string_view text, bool at_begin, std::vector<uint32_t>& ids,
                              std::vector<TokenSpan>* spans) {
  const Normalizer& marks = at_begin ? tokenizer_.marks_at_begin_ : tokenizer_.marks_elsewhere_;
  std::string scratch;
  std::vector<TextMap> maps;
  const size_t first = spans ? spans->size() : 0;
  encode_marked(marks.apply(text, scratch, spans ? &maps : nullptr), ids, spans);
  if (spans) map_back(maps, first, *spans);
}

void TextEncoder::encode_marked(std::string_view text, std::vector<uint32_t>& ids,
                                std::vector<TokenSpan>* spans) {
  const auto* const characters = std::get_if<CharacterPairs>(&tokenizer_.pairs_);
  const size_t before = ids.size();
  if (!characters) {
    tokenizer_.splitter_.split(text, [&](std::string_view piece) { encode_piece(piece, ids); });
    if (spans) add_spans(text, std::span(ids).subspan(before), *spans);
    return;
  }
  tokenizer_.splitter_.split(text, [&](std::string_view piece) {
    characters->cut(piece, [&](std::string_view part) {
      if (!spans) return encode_piece(part, ids);
      const size_t first = spans->size();
      characters->encode(part, scratch_, ids, spans);
      shift(static_cast<size_t>(part.data() - text.data()), first, *spans);
    });
  });
}

// The tokens' bytes are those of the text, in order, but for bytes without a token, which are left out.
void TextEncoder::add_spans(std::string_view text, std::span<const uint32_t> ids,
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
    spans.push_back({at, end});
    at = end;
  }
}

}  // namespace dstrain
