// Scaling of images.
#pragma once

#include <cstdint>
#include <vector>

namespace dstrain {

// An image: rows from the top, pixels from the left, `channels` bytes each.
struct ImagePixels {
  int64_t width = 0, height = 0;
  int channels = 3;
  std::vector<unsigned char> values = {};
};

// Returns the sizes of an image of `width` x `height` whose shorter side is scaled to `side`; the other one keeps the
// proportion, rounded down.
struct ScaledSize {
  int64_t width = 0, height = 0;
};
ScaledSize scaled_size(int64_t width, int64_t height, int64_t side);

// Scales `image` so that its shorter side has `side` pixels, by a triangular filter, which takes all pixels of a smaller image
// into account: columns first, then rows, each rounded to whole values. The same on all machines. `between` is scratch.
void scale_shorter_side(ImagePixels& image, int64_t side, ImagePixels& between);

}  // namespace dstrain
