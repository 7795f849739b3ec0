#include "runtime/data/tokenizer/bpe/byte_pairs.h"

#include <utility>

namespace dstrain {

BytePairs::BytePairs(const std::array<uint32_t, 256>& byte_ids,
                     const std::vector<TokenMerge>& merges, TokenIds whole)
    : byte_ids_(byte_ids), merges_(merges), whole_(std::move(whole)) {}

void BytePairs::encode(std::string_view piece, MergeScratch& scratch,
                       std::vector<uint32_t>& ids) const {
  if (!whole_.empty())
    if (const auto at = whole_.find(piece); at != whole_.end()) return ids.push_back(at->second);
  scratch.ids.clear();
  for (const char byte : piece)
    if (const uint32_t id = byte_ids_[static_cast<unsigned char>(byte)]; id != kNoToken)
      scratch.ids.push_back(id);
  merges_.merge(scratch);
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

}  // namespace dstrain
