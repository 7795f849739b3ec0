// BytePairs: the vocabulary and merges of a byte-level tokenizer. A piece of text begins as its bytes' tokens, which are
// merged.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/data/tokenizer/bpe/pair_merges.h"
#include "runtime/data/tokenizer/bpe/token_ids.h"

namespace dstrain {

class BytePairs {
 public:
  // `byte_ids`: the token of each byte; a byte of kNoToken is left out of the result, as the tokenizers library does.
  // `whole`: tokens that a piece of these bytes is without any merge; empty unless the tokenizer ignores merges.
  BytePairs(const std::array<uint32_t, 256>& byte_ids, const std::vector<TokenMerge>& merges,
            TokenIds whole);

  // Appends the ids of `piece`.
  void encode(std::string_view piece, MergeScratch& scratch, std::vector<uint32_t>& ids) const;

 private:
  std::array<uint32_t, 256> byte_ids_;
  PairMerges merges_;
  TokenIds whole_;
};

}  // namespace dstrain
