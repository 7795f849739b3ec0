#include "runtime/data/images/decode.h"

#include <fmt/format.h>

#include "runtime/core/error.h"
#include "runtime/data/images/decoders.h"

namespace dstrain {

bool can_decode(ImageKind kind) {
  return kind == ImageKind::png ? has_png() : has_jpeg();
}

std::string decoder_advice(ImageKind kind) {
  return fmt::format(
      "this build has no decoder of {} files: apt-get install {}, and configure and build dstrain "
      "again",
      kind == ImageKind::png ? "PNG" : "JPEG",
      kind == ImageKind::png ? "libpng-dev" : "libjpeg62-turbo-dev");
}

std::string decode_image(const ImageHeader& header, std::span<const unsigned char> bytes,
                         int channels, unsigned char* to) {
  check(channels == 3 || (channels == 1 && !header.color), "a color image is read into {} channel",
        channels);
  return header.kind == ImageKind::png ? decode_png(header, bytes, channels, to)
                                       : decode_jpeg(header, bytes, channels, to);
}

}  // namespace dstrain
