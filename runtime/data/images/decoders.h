// The decoder of each kind of image file, or what stands for one in a build without its library.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/data/images/image_header.h"

namespace dstrain {

bool has_png();
bool has_jpeg();
// As decode_image() (decode.h), of a file of the kind.
std::string decode_png(const ImageHeader& header, std::span<const unsigned char> bytes,
                       int channels, unsigned char* to);
std::string decode_jpeg(const ImageHeader& header, std::span<const unsigned char> bytes,
                        int channels, unsigned char* to);

}  // namespace dstrain
