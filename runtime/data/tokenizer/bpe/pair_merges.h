// PairMerges: the merges of a tokenizer. Of a row of tokens the merge of the lowest rank is made, the leftmost first, until
// there is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/data/tokenizer/bpe/pair_table.h"

namespace dstrain {

inline constexpr uint32_t kNoToken = std::numeric_limits<uint32_t>::max();

// A merge of two tokens into a third, all by their ids. Its rank is its place in the list.
struct TokenMerge {
  uint32_t left, right, merged;
};

// Memory of one thread that merge() uses again and again; `ids` is the row.
struct MergeScratch {
  std::vector<uint32_t> ids, ranks, merged;
};

class PairMerges {
 public:
  explicit PairMerges(const std::vector<TokenMerge>& merges);

  // Makes the merges in scratch.ids. A row of n tokens takes n log n steps.
  void merge(MergeScratch& scratch) const;

 private:
  void merge_few(MergeScratch& scratch) const;
  void merge_many(MergeScratch& scratch) const;

  PairTable pairs_;
};

}  // namespace dstrain
