#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "runtime/data/images/decoders.h"

namespace dstrain {
namespace {

// What libpng's callbacks know. It leaves a damaged file by longjmp, so it holds nothing that wants a destructor.
struct PngReader {
  const unsigned char* at = nullptr;
  size_t left = 0;
  char problem[200] = {};
  std::jmp_buf back{};
};

[[noreturn]] void stop_png(png_structp png, png_const_charp text) {
  auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(reader->problem, sizeof(reader->problem), "%s", text);
  std::longjmp(reader->back, 1);
}

void ignore_png_warning(png_structp, png_const_charp) {}

void read_png_bytes(png_structp png, png_bytep to, size_t bytes) {
  auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (bytes > reader->left) png_error(png, "it is cut short");
  std::memcpy(to, reader->at, bytes);
  reader->at += bytes;
  reader->left -= bytes;
}

// Decodes into `to`. Leaves by stop_png() where the file is damaged.
void read_png_image(png_structp png, png_infop info, const ImageHeader& header, int channels,
                    unsigned char* to) {
  png_set_chunk_malloc_max(png, 1 << 23);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  png_read_info(png, info);
  png_set_strip_16(png);
  png_set_palette_to_rgb(png);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_alpha(png);
  if (channels == 3) png_set_gray_to_rgb(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const auto row_bytes = static_cast<size_t>(header.width * channels);
  if (png_get_image_height(png, info) != static_cast<png_uint_32>(header.height) ||
      png_get_rowbytes(png, info) != row_bytes)
    png_error(png, "it has another size than its header says");
  for (int pass = 0; pass < passes; ++pass)
    for (int64_t y = 0; y < header.height; ++y)
      png_read_row(png, to + static_cast<size_t>(y) * row_bytes, nullptr);
  png_read_end(png, nullptr);
}

}  // namespace

bool has_png() {
  return true;
}

std::string decode_png(const ImageHeader& header, std::span<const unsigned char> bytes,
                       int channels, unsigned char* to) {
  PngReader reader{.at = bytes.data(), .left = bytes.size()};
  png_structp png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, stop_png, ignore_png_warning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  if (info == nullptr) {
    png_destroy_read_struct(&png, nullptr, nullptr);
    return "there is no memory to decode it";
  }
  if (setjmp(reader.back) == 0) {  // NOLINT(bugprone-*,cert-*): libpng's way of reporting errors
    png_set_read_fn(png, &reader, read_png_bytes);
    read_png_image(png, info, header, channels, to);
  }
  png_destroy_read_struct(&png, &info, nullptr);
  return reader.problem;
}

}  // namespace dstrain
