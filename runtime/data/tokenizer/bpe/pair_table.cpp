#include "runtime/data/tokenizer/bpe/pair_table.h"

#include <algorithm>
#include <bit>

namespace dstrain {

PairTable::PairTable(size_t merges)
    : entries_(std::bit_ceil(std::max<size_t>(3 * merges, 16))),
      mask_(entries_.size() - 1),
      shift_(64 - std::countr_zero(entries_.size())) {}

void PairTable::put(uint32_t left, uint32_t right, Merge merge) {
  const uint64_t key = uint64_t{left} << 32 | right;
  size_t at = slot_of(key);
  while (entries_[at].merge.rank != kNoRank && entries_[at].key != key) at = (at + 1) & mask_;
  entries_[at] = {key, merge};
}

}  // namespace dstrain
