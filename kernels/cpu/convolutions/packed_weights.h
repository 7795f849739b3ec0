// The weights of a convolution as its tiles read them (tile_sums.h): for each panel of columns and each place of the windows,
// the words of the panel's columns for each k, with zeros past the last column.
#pragma once

#include <cstdint>
#include <vector>

namespace dstrain {

struct PackedWeights {
  int64_t depth = 0, columns = 0;               // elements
  int64_t depth_stride = 0, column_stride = 0;  // of a weight (outputs, channels, kernel)
  std::vector<int64_t> places{};                // of the kernel
  int64_t panel = 0;                            // columns of a panel
  int64_t element_bytes = 4;                    // 4; 2: words are pairs of k

  int64_t word_depth() const { return depth * element_bytes / 4; }
  int64_t panels() const { return (columns + panel - 1) / panel; }
  int64_t place_words() const { return word_depth() * panel; }
  int64_t panel_words() const { return place_words() * static_cast<int64_t>(places.size()); }
  int64_t bytes() const { return panels() * panel_words() * 4; }
  // Packs panels [begin, end) of a weight.
  void pack(const void* weight, int64_t begin, int64_t end, void* to) const;
};

}  // namespace dstrain
