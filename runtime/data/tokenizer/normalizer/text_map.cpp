#include "runtime/data/tokenizer/normalizer/text_map.h"

#include <algorithm>

namespace dstrain {

void TextMap::same(size_t bytes, size_t original) {
  if (bytes == 0) return;
  runs_.push_back({bytes_, {original, original + bytes}, true});
  bytes_ += bytes;
}

void TextMap::changed(size_t bytes, TokenSpan original) {
  if (bytes == 0) return;
  runs_.push_back({bytes_, original, false});
  bytes_ += bytes;
}

TokenSpan TextMap::original(TokenSpan changed) const {
  if (changed.begin == changed.end) return {place(changed.begin).first, place(changed.begin).first};
  return {place(changed.begin).first, place(changed.end - 1).second};
}

// Returns the first byte of the original text that the byte `at` comes from, and the one behind the last.
std::pair<size_t, size_t> TextMap::place(size_t at) const {
  const auto behind = std::ranges::upper_bound(runs_, at, {}, &Run::begin);
  if (behind == runs_.begin()) return {0, 0};
  const Run& run = *(behind - 1);
  if (!run.same) return {run.original.begin, run.original.end};
  const size_t first = run.original.begin + (at - run.begin);
  return {first, first + 1};
}

}  // namespace dstrain
