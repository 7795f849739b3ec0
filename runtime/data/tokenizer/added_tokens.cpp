#include "runtime/data/tokenizer/added_tokens.h"

#include <algorithm>

#include "runtime/data/tokenizer/bpe/pair_merges.h"
#include "runtime/data/tokenizer/unicode/classes.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

// Returns the offset of the character that ends at `end` (above 0).
size_t begin_of_last(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (!utf8::starts_character(static_cast<unsigned char>(text[at]))) --at;
  return at;
}

bool has_class(std::string_view text, size_t at, uint8_t wanted) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + at;
  return (unicode::classes()[utf8::decode_valid(p).code] & wanted) != 0;
}

bool alone(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !has_class(text, begin_of_last(text, begin), unicode::kWord)) &&
         (end == text.size() || !has_class(text, end, unicode::kWord));
}

size_t spaces_before(std::string_view text, size_t begin) {
  while (begin > 0) {
    const size_t last = begin_of_last(text, begin);
    if (!has_class(text, last, unicode::kSpace)) break;
    begin = last;
  }
  return begin;
}

size_t spaces_behind(std::string_view text, size_t end) {
  while (end < text.size() && has_class(text, end, unicode::kSpace)) do
      ++end;
    while (end < text.size() && !utf8::starts_character(static_cast<unsigned char>(text[end])));
  return end;
}

}  // namespace

void TokenSet::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char c : pattern) {
    const auto [at, fresh] = nodes_[node].next.try_emplace(static_cast<unsigned char>(c),
                                                           static_cast<uint32_t>(nodes_.size()));
    node = at->second;
    if (fresh) nodes_.emplace_back();
  }
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  first_bytes_[static_cast<unsigned char>(pattern.front())] = true;
  longest_ = std::max(longest_, pattern.size());
}

size_t TokenSet::match(std::string_view text, size_t at, int32_t& token) const {
  size_t bytes = 0;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto next = nodes_[node].next.find(static_cast<unsigned char>(text[i]));
    if (next == nodes_[node].next.end()) break;
    node = next->second;
    if (nodes_[node].token < 0) continue;
    token = nodes_[node].token;
    bytes = i + 1 - at;
  }
  return bytes;
}

void TokenSet::divide(std::string_view text, std::vector<TextPart>& parts) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    int32_t index = -1;
    if (!first_bytes_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const size_t bytes = match(text, at, index);
    if (bytes == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + bytes;
    at = end;
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    if (token.single_word && !alone(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(spaces_before(text, begin), done);
    if (token.rstrip) end = spaces_behind(text, end);
    if (done < begin) parts.push_back({kNoToken, text.substr(done, begin - done)});
    // One in the white space that the token before took is found again, and left out if nothing of it is left.
    if (begin < end) parts.push_back({token.id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) parts.push_back({kNoToken, text.substr(done)});
}

bool TokenSet::touches(std::string_view text, size_t offset) const {
  const size_t from = offset > longest_ ? offset - longest_ : 0;
  for (size_t at = from; at <= offset && at < text.size(); ++at) {
    if (!first_bytes_[static_cast<unsigned char>(text[at])]) continue;
    // Shorter patterns than the longest may be the ones that count, so each end is looked at.
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      const auto next = nodes_[node].next.find(static_cast<unsigned char>(text[i]));
      if (next == nodes_[node].next.end()) break;
      node = next->second;
      if (nodes_[node].token >= 0 && i + 1 >= offset) return true;
    }
  }
  return false;
}

}  // namespace dstrain
