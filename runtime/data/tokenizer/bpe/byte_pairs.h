// BytePairs: the vocabulary and merges of a byte-level tokenizer. A piece of text begins as its bytes' tokens; the
// merge of the lowest rank is made, the leftmost first, until there is none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/data/tokenizer/bpe/pair_table.h"

namespace dstrain {

inline constexpr uint32_t kNoToken = std::numeric_limits<uint32_t>::max();

// A merge of two tokens into a third, all by their ids. Its rank is its place in the list.
struct TokenMerge {
  uint32_t left, right, merged;
};

// Memory of one thread that encode() uses again and again.
struct MergeScratch {
  std::vector<uint32_t> ids, ranks, merged;
};

class BytePairs {
 public:
  // `byte_ids`: the token of each byte; a byte of kNoToken is left out of the result, as the tokenizers library does.
  // `whole`: tokens that a piece of these bytes is without any merge; empty unless the tokenizer ignores merges.
  BytePairs(const std::array<uint32_t, 256>& byte_ids, const std::vector<TokenMerge>& merges,
            const std::unordered_map<std::string, uint32_t>& whole);

  // Appends the ids of `piece`.
  void encode(std::string_view piece, MergeScratch& scratch, std::vector<uint32_t>& ids) const;

 private:
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the name of the standard
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  void merge_few(MergeScratch& scratch) const;
  void merge_many(MergeScratch& scratch) const;

  std::array<uint32_t, 256> byte_ids_;
  PairTable pairs_;
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> whole_;
};

}  // namespace dstrain
