// In place of decode_jpeg.cpp where there is no libjpeg-turbo.
#include "runtime/data/images/decode.h"
#include "runtime/data/images/decoders.h"

namespace dstrain {

bool has_jpeg() {
  return false;
}

std::string decode_jpeg(const ImageHeader&, std::span<const unsigned char>, int, unsigned char*) {
  return decoder_advice(ImageKind::jpeg);
}

}  // namespace dstrain
