// Decoding PNG by libpng and JPEG by libjpeg-turbo, each where the build has the library.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/data/images/image_header.h"

namespace dstrain {

// Returns whether the build can decode files of a kind.
bool can_decode(ImageKind kind);

// Returns what to do where it cannot: "install libpng-dev ...".
std::string decoder_advice(ImageKind kind);

// Writes the image of a file with these bytes to `to`: rows from the top, pixels from the left, `channels` (1 or 3) bytes
// each, width * height * channels of `header` together. Gray images give three equal channels; transparency is dropped;
// values of 16 bits lose their lower half. Returns what is wrong with the file, then `to` has any values; else "". `channels`
// may be 1 for images without color alone.
std::string decode_image(const ImageHeader& header, std::span<const unsigned char> bytes,
                         int channels, unsigned char* to);

}  // namespace dstrain
