#include "runtime/data/tokenizer/bpe/pair_merges.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

namespace dstrain {
namespace {

// Up to so many symbols, looking through all ranks for the lowest is faster than a heap.
constexpr size_t kFew = 96;

void erase_at(std::vector<uint32_t>& values, size_t at) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

PairMerges::PairMerges(const std::vector<TokenMerge>& merges) : pairs_(merges.size()) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const TokenMerge& m = merges[rank];
    pairs_.put(m.left, m.right, {static_cast<uint32_t>(rank), m.merged});
  }
}

void PairMerges::merge(MergeScratch& scratch) const {
  if (scratch.ids.size() <= kFew)
    merge_few(scratch);
  else
    merge_many(scratch);
}

void PairMerges::merge_few(MergeScratch& scratch) const {
  std::vector<uint32_t>&ids = scratch.ids, &ranks = scratch.ranks, &merged = scratch.merged;
  if (ids.size() < 2) return;
  ranks.resize(ids.size() - 1);
  merged.resize(ids.size() - 1);
  const auto look_up = [&](size_t at) {
    const Merge merge = pairs_.find(ids[at], ids[at + 1]);
    ranks[at] = merge.rank;
    merged[at] = merge.id;
  };
  for (size_t i = 0; i < ranks.size(); ++i) look_up(i);
  while (!ranks.empty()) {
    const auto lowest = static_cast<size_t>(std::ranges::min_element(ranks) - ranks.begin());
    if (ranks[lowest] == kNoRank) return;
    ids[lowest] = merged[lowest];
    erase_at(ids, lowest + 1);
    erase_at(ranks, lowest);
    erase_at(merged, lowest);
    if (lowest > 0) look_up(lowest - 1);
    if (lowest < ranks.size()) look_up(lowest);
  }
}

void PairMerges::merge_many(MergeScratch& scratch) const {
  std::vector<uint32_t>&ids = scratch.ids, &ranks = scratch.ranks, &merged = scratch.merged;
  const size_t count = ids.size();
  // Symbols in a list; `ranks` and `merged`: of a symbol with the next one. A symbol that was merged away has kNoRank.
  std::vector<size_t> before(count), behind(count);
  ranks.assign(count, kNoRank);
  merged.assign(count, 0);
  using Candidate = std::tuple<uint32_t, size_t>;  // rank, symbol
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto look_up = [&](size_t at) {
    ranks[at] = kNoRank;
    if (behind[at] == count) return;
    const Merge merge = pairs_.find(ids[at], ids[behind[at]]);
    ranks[at] = merge.rank;
    merged[at] = merge.id;
    if (merge.rank != kNoRank) candidates.emplace(merge.rank, at);
  };
  for (size_t i = 0; i < count; ++i) {
    before[i] = i - 1;
    behind[i] = i + 1;
    look_up(i);
  }
  while (!candidates.empty()) {
    const auto [rank, at] = candidates.top();
    candidates.pop();
    if (ranks[at] != rank) continue;  // one of the pair has been merged since
    const size_t gone = behind[at];
    ids[at] = merged[at];
    behind[at] = behind[gone];
    if (behind[gone] != count) before[behind[gone]] = at;
    ranks[gone] = kNoRank;
    look_up(at);
    if (at > 0) look_up(before[at]);
  }
  size_t kept = 0;
  for (size_t at = 0; at != count; at = behind[at]) ids[kept++] = ids[at];
  ids.resize(kept);
}

}  // namespace dstrain
