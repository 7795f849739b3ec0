#include "runtime/data/images/image_samples.h"

#include <algorithm>

namespace dstrain {
namespace {

float of_channel(const std::vector<double>& values, int64_t channel) {
  return static_cast<float>(values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)]);
}

// Returns a whole number from 0 to below `count`.
int64_t drawn(uint32_t word, int64_t count) {
  return static_cast<int64_t>((uint64_t{word} * static_cast<uint64_t>(count)) >> 32);
}

}  // namespace

ImageSamples::ImageSamples(const ImageConfig& config, uint64_t seed, const ImageDemand& demand)
    : config_(config),
      key_(stream_key(seed, kImageStream)),
      channels_(demand.channels),
      height_(demand.height),
      width_(demand.width) {
  for (int64_t c = 0; c < channels_; ++c) {
    const float mean = of_channel(config.mean, c), std = of_channel(config.std, c);
    std::array<float, 256>& values = values_.emplace_back();
    for (size_t byte = 0; byte < values.size(); ++byte)
      values[byte] = (static_cast<float>(byte) / 255.0f - mean) / std;
  }
}

ImagePart ImageSamples::middle(const ImageView& image) const {
  // Half a pixel is rounded to the even one, as torchvision does.
  const auto half = [](int64_t rest) { return rest / 2 + (rest % 2 == 1 && rest / 2 % 2 == 1); };
  return {.left = half(image.width - width_), .top = half(image.height - height_)};
}

ImagePart ImageSamples::training_part(int64_t place, const ImageView& image) const {
  ImagePart part = middle(image);
  if (config_.crop == 0 && !config_.flip) return part;
  const auto counter = static_cast<uint64_t>(place);
  const PhiloxBlock words =
      philox(key_, {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0});
  if (config_.crop > 0) {
    part.top = drawn(words[0], image.height + 2 * config_.crop - height_ + 1) - config_.crop;
    part.left = drawn(words[1], image.width + 2 * config_.crop - width_ + 1) - config_.crop;
  }
  part.mirrored = config_.flip && (words[2] & 1) != 0;
  return part;
}

void ImageSamples::write(const ImageView& image, const ImagePart& part, float* to) const {
  for (int64_t c = 0; c < channels_; ++c) {
    const std::array<float, 256>& values = values_[static_cast<size_t>(c)];
    for (int64_t y = 0; y < height_; ++y, to += width_) {
      const int64_t from_y = part.top + y;
      if (from_y < 0 || from_y >= image.height) {
        std::fill_n(to, width_, values[0]);
        continue;
      }
      const unsigned char* const row = image.data + c * image.channel + from_y * image.row;
      for (int64_t x = 0; x < width_; ++x) {
        const int64_t from_x = part.left + (part.mirrored ? width_ - 1 - x : x);
        to[x] = values[from_x < 0 || from_x >= image.width ? 0 : row[from_x * image.pixel]];
      }
    }
  }
}

}  // namespace dstrain
