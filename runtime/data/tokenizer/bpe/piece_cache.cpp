#include "runtime/data/tokenizer/bpe/piece_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace dstrain {
namespace {

constexpr size_t kEntries = size_t{1} << 16;
constexpr size_t kMostWords = size_t{1} << 20;  // 4 MB; then all is forgotten
constexpr size_t kLongestPiece = 128;

size_t words_of(size_t bytes) {
  return (bytes + 3) / 4;
}

}  // namespace

PieceCache::PieceCache() : entries_(kEntries) {
  words_.reserve(kMostWords);
}

uint64_t PieceCache::hash_of(std::string_view piece) {
  return XXH3_64bits(piece.data(), piece.size());
}

std::span<const uint32_t> PieceCache::find(std::string_view piece, bool& known) const {
  known = false;
  if (piece.empty() || piece.size() > kLongestPiece) return {};
  const uint64_t hash = hash_of(piece);
  const Entry& entry = entries_[hash % kEntries];
  if (entry.hash != hash || entry.bytes != piece.size() ||
      std::memcmp(words_.data() + entry.at, piece.data(), piece.size()) != 0)
    return {};
  known = true;
  return {words_.data() + entry.at + words_of(entry.bytes), entry.ids};
}

void PieceCache::put(std::string_view piece, std::span<const uint32_t> ids) {
  if (piece.empty() || piece.size() > kLongestPiece) return;
  const size_t words = words_of(piece.size());
  if (words_.size() + words + ids.size() > kMostWords) {
    entries_.assign(kEntries, {});
    words_.clear();
  }
  const uint64_t hash = hash_of(piece);
  const size_t at = words_.size();
  entries_[hash % kEntries] = {hash, static_cast<uint32_t>(at), static_cast<uint16_t>(piece.size()),
                               static_cast<uint16_t>(ids.size())};
  words_.resize(at + words);
  std::memcpy(words_.data() + at, piece.data(), piece.size());
  words_.insert(words_.end(), ids.begin(), ids.end());
}

}  // namespace dstrain
