#include "runtime/data/images/scale.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dstrain {
namespace {

constexpr int kWeightBits = 20;

// The pixels of a line of which one of the scaled line is a mean, with their weights, which add up to 2^kWeightBits.
struct ScaledPixel {
  int64_t first = 0;
  std::vector<int64_t> weights = {};
};

std::vector<ScaledPixel> scaled_pixels(int64_t from, int64_t to) {
  const double ratio = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(1.0, ratio);  // of the filter, to both sides
  std::vector<ScaledPixel> pixels;
  for (int64_t i = 0; i < to; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * ratio;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(middle - reach + 0.5)));
    const auto end =
        std::min<int64_t>(from, static_cast<int64_t>(std::floor(middle + reach + 0.5)));
    std::vector<double> shares;
    double sum = 0;
    for (int64_t j = first; j < end; ++j) {
      const double away = std::abs(static_cast<double>(j) + 0.5 - middle) / reach;
      shares.push_back(std::max(0.0, 1.0 - away));
      sum += shares.back();
    }
    ScaledPixel pixel{.first = first};
    int64_t left = int64_t{1} << kWeightBits;
    for (const double share : shares) {
      pixel.weights.push_back(std::llround(std::ldexp(share / sum, kWeightBits)));
      left -= pixel.weights.back();
    }
    *std::ranges::max_element(pixel.weights) += left;  // what rounding has left over
    pixels.push_back(std::move(pixel));
  }
  return pixels;
}

// Writes a line, whose pixels are `step` apart, as one of as many pixels as `pixels` has.
void scale_line(const std::vector<ScaledPixel>& pixels, const unsigned char* from,
                int64_t from_step, unsigned char* to, int64_t to_step) {
  for (const ScaledPixel& pixel : pixels) {
    int64_t sum = int64_t{1} << (kWeightBits - 1);
    const unsigned char* at = from + pixel.first * from_step;
    for (const int64_t weight : pixel.weights) {
      sum += weight * *at;
      at += from_step;
    }
    *to = static_cast<unsigned char>(std::clamp<int64_t>(sum >> kWeightBits, 0, 255));
    to += to_step;
  }
}

}  // namespace

ScaledSize scaled_size(int64_t width, int64_t height, int64_t side) {
  if (width <= height) return {side, std::max(side, side * height / width)};
  return {std::max(side, side * width / height), side};
}

void scale_shorter_side(ImagePixels& image, int64_t side, ImagePixels& between) {
  const auto [width, height] = scaled_size(image.width, image.height, side);
  const int64_t channels = image.channels;
  if (width != image.width) {
    const std::vector<ScaledPixel> pixels = scaled_pixels(image.width, width);
    between.values.resize(static_cast<size_t>(width * image.height * channels));
    for (int64_t y = 0; y < image.height; ++y)
      for (int64_t c = 0; c < channels; ++c)
        scale_line(pixels, image.values.data() + y * image.width * channels + c, channels,
                   between.values.data() + y * width * channels + c, channels);
    std::swap(image.values, between.values);
    image.width = width;
  }
  if (height == image.height) return;
  const std::vector<ScaledPixel> pixels = scaled_pixels(image.height, height);
  const int64_t row = width * channels;
  between.values.resize(static_cast<size_t>(row * height));
  for (int64_t x = 0; x < row; ++x)
    scale_line(pixels, image.values.data() + x, row, between.values.data() + x, row);
  std::swap(image.values, between.values);
  image.height = height;
}

}  // namespace dstrain
