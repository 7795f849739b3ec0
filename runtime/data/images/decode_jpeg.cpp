#include <cstdio>
// libjpeg's header wants the one above.
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>

#include "runtime/data/images/decoders.h"

namespace dstrain {
namespace {

// libjpeg's handler of errors, with what it has to say. It leaves a damaged file by longjmp, so it holds nothing that wants a
// destructor.
struct JpegErrors {
  jpeg_error_mgr base{};  // first: libjpeg knows the address
  char problem[JMSG_LENGTH_MAX] = {};
  std::jmp_buf back{};
};

[[noreturn]] void stop_jpeg(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  errors->base.format_message(jpeg, errors->problem);
  std::longjmp(errors->back, 1);
}

// Warnings (level -1) are of damaged data, which are never taken for an image.
void hear_jpeg(j_common_ptr jpeg, int level) {
  if (level < 0) stop_jpeg(jpeg);
}

void print_no_jpeg(j_common_ptr) {}

// Decodes into `to`. Leaves by stop_jpeg() where the file is damaged.
bool read_jpeg_image(jpeg_decompress_struct& jpeg, const ImageHeader& header, int channels,
                     unsigned char* to) {
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_start_decompress(&jpeg);
  if (jpeg.output_width != static_cast<JDIMENSION>(header.width) ||
      jpeg.output_height != static_cast<JDIMENSION>(header.height) ||
      jpeg.output_components != channels)
    return false;
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = to + static_cast<size_t>(jpeg.output_scanline) *
                            static_cast<size_t>(header.width * channels);
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

}  // namespace

bool has_jpeg() {
  return true;
}

std::string decode_jpeg(const ImageHeader& header, std::span<const unsigned char> bytes,
                        int channels, unsigned char* to) {
  jpeg_decompress_struct jpeg{};
  JpegErrors errors;
  jpeg.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = stop_jpeg;
  errors.base.emit_message = hear_jpeg;
  errors.base.output_message = print_no_jpeg;
  if (setjmp(errors.back) == 0) {  // NOLINT(bugprone-*,cert-*): libjpeg's way of reporting errors
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
    if (!read_jpeg_image(jpeg, header, channels, to))
      std::snprintf(errors.problem, sizeof(errors.problem),
                    "it has another size than its header says");
  }
  jpeg_destroy_decompress(&jpeg);
  return errors.problem;
}

}  // namespace dstrain
