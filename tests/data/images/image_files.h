// Bytes of image files for tests, and a model that reads images.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "tests/data/arrays/array_files.h"

namespace dstrain {

inline std::string big_endian_bytes(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

inline std::string png_chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  uint32_t crc = 0xffffffffu;
  for (const char c : body) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return big_endian_bytes(static_cast<uint32_t>(data.size())) + body + big_endian_bytes(~crc);
}

// Returns a PNG file without compression: rows of `channels` bytes a pixel. `type`: its color type; less than 0: that of the
// channels.
inline std::string png_file(int64_t width, int64_t height, int channels,
                            const std::vector<unsigned char>& pixels, int type = -1,
                            std::string_view before_data = {}) {
  std::string rows;
  for (int64_t y = 0; y < height; ++y) {
    rows += '\0';
    for (int64_t i = 0; i < width * channels; ++i)
      rows += static_cast<char>(pixels[static_cast<size_t>(y * width * channels + i)]);
  }
  uint32_t a = 1, b = 0;
  for (const char c : rows) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  std::string packed = "\x78\x01";
  for (size_t begin = 0; begin < rows.size(); begin += 65535) {
    const std::string part = rows.substr(begin, 65535);
    const auto size = static_cast<int64_t>(part.size());
    packed += begin + part.size() == rows.size() ? '\1' : '\0';
    packed += ZipFile::number(size, 2) + ZipFile::number(size ^ 0xffff, 2) + part;
  }
  packed += big_endian_bytes(b << 16 | a);
  const int usual = channels == 1 ? 0 : channels == 2 ? 4 : channels == 3 ? 2 : 6;
  std::string header = big_endian_bytes(static_cast<uint32_t>(width)) +
                       big_endian_bytes(static_cast<uint32_t>(height));
  header += '\x08';
  header += static_cast<char>(type < 0 ? usual : type);
  header += std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + std::string(before_data) +
         png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

// Returns pixels of an image that no other `number` has.
inline std::vector<unsigned char> test_pixels(int64_t count, int64_t number) {
  std::vector<unsigned char> pixels;
  for (int64_t i = 0; i < count; ++i)
    pixels.push_back(static_cast<unsigned char>((i * 37 + number * 101 + i / 7) % 251));
  return pixels;
}

// Returns a record of CIFAR-10's binary version, whose values are test_pixels() of the number.
inline std::string cifar_record(int label, int64_t number) {
  const std::vector<unsigned char> pixels = test_pixels(3 * 32 * 32, number);
  return static_cast<char>(label) + std::string(pixels.begin(), pixels.end());
}

// A model that reads images x of (channels, height, width) and labels y.
inline ModelFamily images_family(int64_t channels, int64_t height, int64_t width) {
  return arrays_family({{"x", InputRole::array, DType::f32, {}, {}, {channels, height, width}},
                        {"y", InputRole::array, DType::i32, {}, {}, {}}});
}

// Returns a job on these images, in their order, all of them for training. The family must outlive it.
inline Job image_job(std::vector<std::string> paths, const ModelFamily& family) {
  Job job = array_job(std::move(paths), family);
  job.data.format = DataFormat::images;
  return job;
}

}  // namespace dstrain
