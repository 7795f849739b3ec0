#include "runtime/data/images/image_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::string_view kPngMark = "\x89PNG\r\n\x1a\n", kJpegMark = "\xff\xd8\xff";
// The pixels of a JPEG file that one of its bytes can stand for, and the bytes of pixels that one byte of a PNG file can:
// Deflate makes at most 1032 of one, and an entropy code has at least a bit for a block of 8 by 8.
constexpr int64_t kMostOfByte = 1040;

template <class... Args>
[[noreturn]] void refuse_image(const InputFile& file, fmt::format_string<Args...> format,
                               Args&&... args) {
  fail_user("the image {}: {}", file.path(), fmt::format(format, std::forward<Args>(args)...));
}

int64_t big_endian(const unsigned char* at, int bytes) {
  int64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}

// Reads pieces of a file that may be shorter.
class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file) : file_(file), size_(file.size()) {}
  int64_t size() const { return size_; }
  // Reads `bytes` bytes, at most 64, from `offset` on.
  const unsigned char* at(int64_t offset, int64_t bytes) {
    if (offset < 0 || bytes > size_ - offset)
      refuse_image(file_, "it is cut short: {} bytes do not hold its header", size_);
    file_.read_at(buffer_.data(), bytes, offset);
    return buffer_.data();
  }

 private:
  const InputFile& file_;
  int64_t size_;
  std::array<unsigned char, 64> buffer_{};
};

bool begins_with(const unsigned char* bytes, std::string_view mark) {
  return std::memcmp(bytes, mark.data(), mark.size()) == 0;
}

void check_pixels(const InputFile& file, const ImageHeader& header, int64_t least_bytes) {
  if (header.width < 1 || header.height < 1)
    refuse_image(file, "its header says {} x {} pixels", header.width, header.height);
  if (header.width > kMostPixels / header.height)
    refuse_image(file, "its header says {} x {} pixels, expected at most {}: scale it down",
                 header.width, header.height, kMostPixels);
  if (least_bytes / kMostOfByte > file.size())
    refuse_image(file,
                 "its header says {} x {} pixels, which its {} bytes cannot hold: it is damaged, "
                 "or cut short",
                 header.width, header.height, file.size());
}

ImageHeader read_png(const InputFile& file, HeaderReader& reader) {
  const unsigned char* const ihdr = reader.at(8, 25);
  if (big_endian(ihdr, 4) != 13 || !begins_with(ihdr + 4, "IHDR"))
    refuse_image(file, "it begins as a PNG file does, and has no header behind that");
  ImageHeader header{
      .kind = ImageKind::png, .width = big_endian(ihdr + 8, 4), .height = big_endian(ihdr + 12, 4)};
  const int64_t bits = ihdr[16];
  const int type = ihdr[17];
  header.color = (type & 2) != 0;
  const int64_t channels = type == 2 ? 3 : type == 4 ? 2 : type == 6 ? 4 : 1;
  check_pixels(file, header,
               header.height > 0 && header.width <= kMostPixels / header.height
                   ? header.width * header.height * channels * bits / 8
                   : 0);
  constexpr std::string_view end("\0\0\0\0IEND", 8);
  if (!begins_with(reader.at(reader.size() - 12, 12), end))
    refuse_image(file, "it is cut short: it does not end as a PNG file does");
  return header;
}

// Returns whether a marker begins the header of a frame.
bool is_frame(int marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

// Throws unless the end of the image is among the last bytes: cameras append some of their own.
void check_jpeg_end(const InputFile& file, HeaderReader& reader) {
  constexpr int64_t kSearched = 1 << 16, kStep = 63;  // pieces overlap by one byte
  for (int64_t end = reader.size(); end > std::max<int64_t>(2, reader.size() - kSearched);
       end -= kStep) {
    const int64_t begin = std::max<int64_t>(0, end - 64);
    const unsigned char* const bytes = reader.at(begin, end - begin);
    for (int64_t i = 0; i + 1 < end - begin; ++i)
      if (bytes[i] == 0xff && bytes[i + 1] == 0xd9) return;
  }
  refuse_image(file, "it is cut short: it does not end as a JPEG file does");
}

ImageHeader read_jpeg(const InputFile& file, HeaderReader& reader) {
  int64_t offset = 2;
  int marker = 0;
  while (true) {
    const unsigned char* const segment = reader.at(offset, 4);
    if (segment[0] != 0xff) refuse_image(file, "it is damaged: byte {} begins no marker", offset);
    if (segment[1] == 0xff) {  // a fill byte
      ++offset;
      continue;
    }
    marker = segment[1];
    if (is_frame(marker)) break;
    if (marker == 0xd9 || marker == 0xda || big_endian(segment + 2, 2) < 2)
      refuse_image(file, "it is damaged: it has no header of its frame");
    offset += 2 + big_endian(segment + 2, 2);
  }
  const unsigned char* const frame = reader.at(offset, 10);
  ImageHeader header{.kind = ImageKind::jpeg,
                     .width = big_endian(frame + 7, 2),
                     .height = big_endian(frame + 5, 2)};
  const int bits = frame[4], channels = frame[9];
  header.color = channels == 3;
  if (bits != 8)
    refuse_image(file, "it has {} bits for each value, expected 8: save it as a usual JPEG file",
                 bits);
  if (channels != 1 && channels != 3)
    refuse_image(file, "it has {} channels, expected 1 or 3: save it in RGB", channels);
  check_pixels(file, header, header.width * header.height);
  check_jpeg_end(file, reader);
  return header;
}

}  // namespace

ImageHeader read_image_header(const InputFile& file) {
  HeaderReader reader(file);
  if (reader.size() == 0) refuse_image(file, "it is empty");
  if (reader.size() >= 8) {
    const unsigned char* const first = reader.at(0, 8);
    if (begins_with(first, kPngMark)) return read_png(file, reader);
    if (begins_with(first, kJpegMark)) return read_jpeg(file, reader);
  }
  refuse_image(file,
               "it is neither PNG nor JPEG, as its first bytes tell: remove it, or save it in "
               "one of these");
}

}  // namespace dstrain
