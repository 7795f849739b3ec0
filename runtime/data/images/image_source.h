// ImageSource: the images of a part of the data, with their labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/images/scale.h"

namespace dstrain {

// Where the values of an image are: that of channel c of pixel (x, y) is data[c * channel + y * row + x * pixel].
struct ImageView {
  const unsigned char* data = nullptr;
  int64_t width = 0, height = 0;
  int64_t channel = 0, row = 0, pixel = 0;
};

// Memory in which an image is read, which one thread uses for one image after another.
struct ImageScratch {
  std::vector<unsigned char> file = {};
  ImagePixels image = {}, between = {};
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual int64_t samples() const = 0;
  // Returns how many of the samples, at their end, are for validation.
  virtual int64_t held_out() const = 0;
  // Returns the class of a sample, from 0 to below classes().
  virtual int32_t label(int64_t sample) const = 0;
  // Returns an image that has the channels that the source was opened with, and at least the model's sizes. It lies in
  // `scratch` or in the source. Throws RunError if its file is damaged, or has changed since it was opened.
  virtual ImageView image(int64_t sample, ImageScratch& scratch) const = 0;
  virtual int64_t classes() const = 0;
  // Returns a checksum of the images and labels, which is computed at the first call.
  virtual uint64_t checksum() const = 0;
  virtual SplitFiles files() const = 0;
  // Throws RunError if a file was cut short while it was read.
  virtual void check_whole() const = 0;
  // Throws RunError if the files have changed since they were opened.
  virtual void check_unchanged() const = 0;
  // Returns for example "images in 10 classes".
  virtual std::string text() const = 0;
};

// What a source is opened for.
struct ImageDemand {
  int64_t channels = 3, height = 0, width = 0;  // of the model's images
  int64_t side = 0;         // to which the shorter sides of images are scaled; 0: they are not
  double held_out = 0;      // share of the samples that is for validation
  bool validation = false;  // of a folder with files for training and for validation: the latter
};

}  // namespace dstrain
