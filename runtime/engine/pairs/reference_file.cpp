#include "runtime/engine/pairs/reference_file.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include "runtime/core/checksum.h"
#include "runtime/core/files/atomic_file.h"

namespace dstrain {
namespace {

constexpr uint64_t kMagic = 0x3130464552545344;  // "DSTREF01"

struct Header {
  uint64_t magic = kMagic;
  ReferenceKey key;
  int64_t values = 0;     // that follow, f32
  uint64_t checksum = 0;  // of them
};

}  // namespace

std::vector<float> ReferenceFile::read(int64_t count) {
  std::ifstream file(path_, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Header header;
  if (!file || bytes.size() < sizeof header) return {};
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto held = static_cast<int64_t>((bytes.size() - sizeof header) / sizeof(float));
  const bool same_weights = key_.weights == 0 || header.key.weights == key_.weights;
  if (header.magic != kMagic || header.key.data != key_.data || !same_weights ||
      header.values != held || held > count ||
      bytes.size() != sizeof header + static_cast<size_t>(held) * sizeof(float))
    return {};
  std::vector<float> values(static_cast<size_t>(held));
  std::memcpy(values.data(), bytes.data() + sizeof header, values.size() * sizeof(float));
  if (checksum_of(values.data(), held * static_cast<int64_t>(sizeof(float))) != header.checksum)
    return {};
  key_ = header.key;
  return values;
}

void ReferenceFile::write(std::span<const float> values) const {
  const Header header{.key = key_,
                      .values = std::ssize(values),
                      .checksum = checksum_of(values.data(), std::ssize(values) * 4)};
  std::string bytes(sizeof header + values.size_bytes(), '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, values.data(), values.size_bytes());
  write_file(path_, bytes);
}

}  // namespace dstrain
