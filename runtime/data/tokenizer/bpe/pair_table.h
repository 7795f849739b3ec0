// PairTable: the merges of a tokenizer, looked up by the two ids that are merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace dstrain {

// A merge: lower ranks are made first. kNoRank: there is none.
struct Merge {
  uint32_t rank, id;
};
inline constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

class PairTable {
 public:
  // Makes an empty table with room for `merges`.
  explicit PairTable(size_t merges);

  // A pair that is there already gets the new merge. The caller must not put more pairs than there is room for.
  void put(uint32_t left, uint32_t right, Merge merge);

  Merge find(uint32_t left, uint32_t right) const {
    const uint64_t key = uint64_t{left} << 32 | right;
    for (size_t at = slot_of(key);; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.key == key) return entry.merge;
      if (entry.merge.rank == kNoRank) return {kNoRank, 0};
    }
  }

 private:
  struct Entry {
    uint64_t key = 0;
    Merge merge{kNoRank, 0};  // rank kNoRank: an empty entry
  };

  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>(key * 0x9e3779b97f4a7c15u >> shift_);
  }

  std::vector<Entry> entries_;
  size_t mask_;
  int shift_;
};

}  // namespace dstrain
