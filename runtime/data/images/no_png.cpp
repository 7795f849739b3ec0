// In place of decode_png.cpp where there is no libpng.
#include "runtime/data/images/decode.h"
#include "runtime/data/images/decoders.h"

namespace dstrain {

bool has_png() {
  return false;
}

std::string decode_png(const ImageHeader&, std::span<const unsigned char>, int, unsigned char*) {
  return decoder_advice(ImageKind::png);
}

}  // namespace dstrain
