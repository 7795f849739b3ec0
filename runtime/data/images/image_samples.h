// How a sample is made of an image: a part of the model's size, mirrored or not, with values of zero mean.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/core/philox.h"
#include "runtime/data/images/image_source.h"

namespace dstrain {

// The part of an image that is a sample.
struct ImagePart {
  int64_t left = 0, top = 0;  // of its first pixel; outside of the image all is black
  bool mirrored = false;
};

class ImageSamples {
 public:
  // `demand`: the sizes of the model's images.
  ImageSamples(const ImageConfig& config, uint64_t seed, const ImageDemand& demand);

  // Returns the part that training takes of an image at a place of the order of all epochs: a pure function of the seed and
  // the place. With (w0, w1, w2, .) = philox(stream_key(seed, kImageStream), {place low, place high, 0, 0}) and an image of
  // H x W whose part has h x w: top = w0 * (H + 2 crop - h + 1) / 2^32 - crop, left = w1 * (W + 2 crop - w + 1) / 2^32 -
  // crop, mirrored = w2's lowest bit. Without crop it is the middle.
  ImagePart training_part(int64_t place, const ImageView& image) const;
  // Returns the middle, as it is.
  ImagePart middle(const ImageView& image) const;
  // Writes channels x height x width values to `to`: (value / 255 - mean) / std, each operation rounded to f32.
  void write(const ImageView& image, const ImagePart& part, float* to) const;

 private:
  ImageConfig config_;
  PhiloxKey key_;
  int64_t channels_, height_, width_;
  std::vector<std::array<float, 256>> values_;  // by channel: that of each byte
};

}  // namespace dstrain
