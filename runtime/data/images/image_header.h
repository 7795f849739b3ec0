// What the first bytes of a PNG or JPEG file say of its image. Files may be hostile: nothing is allocated because of what
// they say, and an image that its bytes cannot hold is refused.
#pragma once

#include <cstdint>

#include "runtime/core/files/input_file.h"

namespace dstrain {

// The pixels that an image may have: more are no image that anything trains on.
inline constexpr int64_t kMostPixels = int64_t{1} << 26;

enum class ImageKind : uint8_t { png, jpeg };

struct ImageHeader {
  ImageKind kind = ImageKind::png;
  int64_t width = 0, height = 0;
  bool color = false;  // three channels, or a palette
};

// Returns what the file's header says. Reads a few hundred bytes. Throws UserError if the file is neither PNG nor JPEG, or
// damaged, if it is cut short as far as its end tells, if its image has more than kMostPixels or more than its bytes can
// hold, and for JPEG files of four channels or of more than 8 bits.
ImageHeader read_image_header(const InputFile& file);

}  // namespace dstrain
