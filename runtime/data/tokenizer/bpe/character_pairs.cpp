#include "runtime/data/tokenizer/bpe/character_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace dstrain {
namespace {

utf8::Character character_at(std::string_view text, size_t at) {
  return utf8::decode_valid(reinterpret_cast<const unsigned char*>(text.data()) + at);
}

// Returns the code point of the character that ends at `end` (above 0).
uint32_t character_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (!utf8::starts_character(static_cast<unsigned char>(text[at]))) --at;
  return character_at(text, at).code;
}

int hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  // The library takes a sign for the first digit.
  const int high = token[3] == '+' ? 0 : hexadecimal(token[3]), low = hexadecimal(token[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

CharacterPairs::CharacterPairs(TokenIds vocabulary, const std::vector<TokenMerge>& merges,
                               UnknownCharacters unknown, bool ignore_merges)
    : vocabulary_(std::move(vocabulary)),
      merges_(merges),
      unknown_(unknown),
      ignore_merges_(ignore_merges),
      character_ids_(utf8::kCodePoints, kNoToken) {
  byte_ids_.fill(kNoToken);
  for (const auto& [token, id] : vocabulary_) {
    if (lengths_.size() <= id) lengths_.resize(id + 1);
    lengths_[id] = static_cast<uint32_t>(token.size());
    if (token.empty()) continue;
    const utf8::Character first = character_at(token, 0);
    if (static_cast<size_t>(first.bytes) == token.size()) character_ids_[first.code] = id;
  }
  if (unknown_.byte_fallback) {
    for (uint32_t byte = 0; byte < 256; ++byte)
      if (const auto at = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
          at != vocabulary_.end())
        byte_ids_[byte] = at->second;
    all_bytes_ = std::ranges::find(byte_ids_, kNoToken) == byte_ids_.end();
  }
  note_joined(merges);
  if (!ignore_merges_) vocabulary_.clear();
}

void CharacterPairs::note_joined(const std::vector<TokenMerge>& merges) {
  std::vector<bool> merged(lengths_.size());
  for (const TokenMerge& merge : merges) merged[merge.merged] = true;
  for (const auto& [token, id] : vocabulary_) {
    if (!merged[id]) continue;
    for (size_t at = token.find(kMarkBytes, 1); at != token.npos;
         at = token.find(kMarkBytes, at + kMarkBytes.size()))
      joined_.insert(character_before(token, at));
  }
}

// Tokens are put together from characters' tokens, so a merge over this place makes one with these two characters.
bool CharacterPairs::may_cut(std::string_view piece, size_t at) const {
  const uint32_t before = character_before(piece, at);
  return character_ids_[before] != kNoToken && !joined_.contains(before);
}

bool CharacterPairs::begin_as_bytes(std::string_view character, std::vector<uint32_t>& row) const {
  const auto id_of = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!std::ranges::all_of(character, [&](char byte) { return id_of(byte) != kNoToken; }))
    return false;
  for (const char byte : character) row.push_back(id_of(byte));
  return true;
}

void CharacterPairs::begin(std::string_view piece, std::vector<uint32_t>& row,
                           std::vector<TokenSpan>* sources) const {
  std::optional<TokenSpan> unknown;  // characters whose token is not in the row yet
  const auto end_unknown = [&] {
    if (!unknown) return;
    row.push_back(unknown_.token);
    if (sources) sources->push_back(*unknown);
    unknown.reset();
  };
  for (size_t at = 0, next = 0; at < piece.size(); at = next) {
    const utf8::Character c = character_at(piece, at);
    next = at + static_cast<size_t>(c.bytes);
    if (const uint32_t id = character_ids_[c.code]; id != kNoToken) {
      end_unknown();
      row.push_back(id);
      if (sources) sources->push_back({at, next});
    } else if (begin_as_bytes(piece.substr(at, next - at), row)) {
      // The library puts these before the token of unknown characters in front of them, too.
      if (sources) sources->insert(sources->end(), next - at, {at, next});
    } else if (unknown_.token != kNoToken) {
      if (!unknown_.fuse) end_unknown();
      unknown = {unknown ? unknown->begin : at, next};
    }
  }
  end_unknown();
}

void CharacterPairs::encode(std::string_view piece, MergeScratch& scratch,
                            std::vector<uint32_t>& ids, std::vector<TokenSpan>* spans) const {
  if (piece.empty()) return;
  if (ignore_merges_)
    if (const auto at = vocabulary_.find(piece); at != vocabulary_.end()) {
      ids.push_back(at->second);
      if (spans) spans->push_back({0, piece.size()});
      return;
    }
  scratch.ids.clear();
  std::vector<TokenSpan> sources;
  begin(piece, scratch.ids, spans ? &sources : nullptr);
  const std::vector<uint32_t> row = spans ? scratch.ids : std::vector<uint32_t>();
  merges_.merge(scratch);
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  if (!spans) return;
  // A merged token is as long as the tokens that it was made of.
  size_t at = 0;
  for (const uint32_t id : scratch.ids) {
    TokenSpan span = sources[at];
    for (uint32_t bytes = 0; bytes < lengths_[id]; ++at) {
      bytes += lengths_[row[at]];
      span = {std::min(span.begin, sources[at].begin), std::max(span.end, sources[at].end)};
    }
    spans->push_back(span);
  }
}

}  // namespace dstrain
