#include "kernels/cpu/convolutions/packed_weights.h"

#include <algorithm>

namespace dstrain {
namespace {

// Words of k and columns of a block: its places fit in the first-level cache, and the lines of 16 columns do so even where their
// distance is a power of two.
constexpr int64_t kDepth = 16, kColumns = 16;

// Packs words [begin, end) of k of some columns of a panel. `Element` has the size of the weight's elements.
template <class Element>
void pack_block(const PackedWeights& w, const Element* from, int64_t begin, int64_t end,
                int64_t columns, Element* to) {
  constexpr int64_t kPair = 4 / sizeof(Element);
  const int64_t depth = w.depth_stride, stride = w.column_stride;
  for (const int64_t place : w.places) {
    for (int64_t k = begin; k < end; ++k)
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t part = 0; part < kPair; ++part)
          to[(k * w.panel + j) * kPair + part] =
              from[place + (k * kPair + part) * depth + j * stride];
    to += w.place_words() * kPair;
  }
}

template <class Element>
void pack_panels(const PackedWeights& w, const Element* from, int64_t begin, int64_t end,
                 Element* to) {
  constexpr int64_t kPair = 4 / sizeof(Element);
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t columns = std::min(w.panel, w.columns - panel * w.panel);
    Element* const here = to + panel * w.panel_words() * kPair;
    if (columns < w.panel) std::fill_n(here, w.panel_words() * kPair, Element{});
    for (int64_t k = 0; k < w.word_depth(); k += kDepth)
      for (int64_t j = 0; j < columns; j += kColumns)
        pack_block(w, from + (panel * w.panel + j) * w.column_stride, k,
                   std::min(k + kDepth, w.word_depth()), std::min(kColumns, columns - j),
                   here + j * kPair);
  }
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
