// PieceCache: the ids of the pieces that were met last. For one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dstrain {

class PieceCache {
 public:
  PieceCache();

  // Returns the ids of `piece` and sets `known`; the span is valid until the next put().
  std::span<const uint32_t> find(std::string_view piece, bool& known) const;
  // Keeps the ids of a piece that is not too long, in the place of another one.
  void put(std::string_view piece, std::span<const uint32_t> ids);

 private:
  struct Entry {
    uint64_t hash = 0;
    uint32_t at = 0;     // in words_: the piece's bytes, then its ids
    uint16_t bytes = 0;  // 0: an empty entry
    uint16_t ids = 0;
  };

  static uint64_t hash_of(std::string_view piece);

  std::vector<Entry> entries_;
  std::vector<uint32_t> words_;
};

}  // namespace dstrain
