#include "runtime/data/images/scale.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

std::vector<unsigned char> scaled(ImagePixels image, int64_t side) {
  ImagePixels between;
  scale_shorter_side(image, side, between);
  return image.values;
}

}  // namespace

TEST_CASE("the shorter side gets the size, and the other one keeps the proportion") {
  const auto sizes = [](int64_t width, int64_t height, int64_t side) {
    const ScaledSize size = scaled_size(width, height, side);
    return std::pair(size.width, size.height);
  };
  CHECK(sizes(500, 375, 224) == std::pair<int64_t, int64_t>(298, 224));
  CHECK(sizes(375, 500, 224) == std::pair<int64_t, int64_t>(224, 298));
  CHECK(sizes(7, 7, 32) == std::pair<int64_t, int64_t>(32, 32));
}

TEST_CASE("scaling takes the mean of the pixels under a triangle") {
  CHECK(
      scaled({.width = 4, .height = 4, .channels = 1, .values = std::vector<unsigned char>(16, 77)},
             2) == std::vector<unsigned char>(4, 77));
  // Halves of a line of 4: the weights of the first pixel are 3, 3, 1 of 7, of columns and of rows.
  const std::vector<unsigned char> ramp{0, 70, 140, 210, 0, 70, 140, 210,
                                        0, 70, 140, 210, 0, 70, 140, 210};
  CHECK(scaled({.width = 4, .height = 4, .channels = 1, .values = ramp}, 2) ==
        std::vector<unsigned char>{50, 160, 50, 160});
  // Twice as large: quarters between neighbours, the ends as they are.
  CHECK(scaled({.width = 2, .height = 2, .channels = 1, .values = {0, 100, 0, 100}}, 4) ==
        std::vector<unsigned char>{0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100});
  // Channels do not mix.
  const std::vector<unsigned char> colors{10, 20, 30, 10, 20, 30, 10, 20, 30, 10, 20, 30};
  CHECK(scaled({.width = 2, .height = 2, .channels = 3, .values = colors}, 1) ==
        std::vector<unsigned char>{10, 20, 30});
}

}  // namespace dstrain
