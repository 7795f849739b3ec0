#include "kernels/cpu/convolutions/packed_weights.h"

#include <algorithm>

namespace dstrain {
namespace {

constexpr int64_t kDepth =
    16;  // words of k whose places fit in the first-level cache with a panel's columns

// Packs words [begin, end) of k of a panel. `Element` has the size of the weight's elements.
template <class Element>
void pack_block(const PackedWeights& w, const Element* from, int64_t begin, int64_t end,
                int64_t columns, Element* to) {
  constexpr int64_t kPair = 4 / sizeof(Element);
  const int64_t of_place = w.place_words() * kPair;
  for (int64_t j = 0; j < w.panel; ++j)
    for (int64_t k = begin * kPair; k < end * kPair; ++k) {
      const Element* const element = from + k * w.depth_stride + j * w.column_stride;
      Element* word = to + (k / kPair * w.panel + j) * kPair + k % kPair;
      for (const int64_t place : w.places) {
        *word = j < columns ? element[place] : Element{};
        word += of_place;
      }
    }
}

template <class Element>
void pack_panels(const PackedWeights& w, const Element* from, int64_t begin, int64_t end,
                 Element* to) {
  constexpr int64_t kPair = 4 / sizeof(Element);
  for (int64_t panel = begin; panel < end; ++panel)
    for (int64_t k = 0; k < w.word_depth(); k += kDepth)
      pack_block(w, from + panel * w.panel * w.column_stride, k,
                 std::min(k + kDepth, w.word_depth()), w.columns - panel * w.panel,
                 to + panel * w.panel_words() * kPair);
}

}  // namespace

void PackedWeights::pack(const void* weight, int64_t begin, int64_t end, void* to) const {
  if (element_bytes == 4)
    pack_panels(*this, static_cast<const uint32_t*>(weight), begin, end,
                static_cast<uint32_t*>(to));
  else
    pack_panels(*this, static_cast<const uint16_t*>(weight), begin, end,
                static_cast<uint16_t*>(to));
}

}  // namespace dstrain
