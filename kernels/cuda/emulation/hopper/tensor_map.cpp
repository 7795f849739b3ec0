#include "kernels/cuda/emulation/hopper/tensor_map.h"

#include <cstring>

#include "runtime/core/error.h"

namespace dstrain::emulated {

uint32_t TensorMap::box_bytes() const {
  uint32_t bytes = element_bytes;
  for (size_t d = 0; d < rank; ++d) bytes *= box[d];
  return bytes;
}

void check_map(const TensorMap& map) {
  check(map.rank >= 1 && map.rank <= kMostDimensions, "a tensor map of {} dimensions", map.rank);
  check(reinterpret_cast<uintptr_t>(map.at) % 16 == 0,
        "a tensor map of an address that is not a multiple of 16");
  for (size_t d = 0; d < map.rank; ++d) {
    check(map.sizes[d] >= 1 && map.sizes[d] <= uint64_t{1} << 32,
          "dimension {} of a tensor map has {} elements", d, map.sizes[d]);
    check(map.box[d] >= 1 && map.box[d] <= 256,
          "dimension {} of a box has {} elements, at most 256", d, map.box[d]);
    if (d + 1 < map.rank)
      check(map.strides[d] % 16 == 0 && map.strides[d] < uint64_t{1} << 40,
            "stride {} of a tensor map is {} bytes, not a multiple of 16 below 2^40", d,
            map.strides[d]);
  }
  const uint32_t row = map.box[0] * map.element_bytes;
  check(row % 16 == 0, "a box has rows of {} bytes, not a multiple of 16", row);
  check(map.swizzle == Swizzle::none || row <= span_of(map.swizzle),
        "a box has rows of {} bytes, of which {} are swizzled", row, span_of(map.swizzle));
}

void copy_box(unsigned char* shared, uint32_t to, const TensorMap& map,
              const std::array<int, kMostDimensions>& first, Swizzle swizzle) {
  constexpr uint32_t kChunk = 16;
  const uint32_t row_bytes = map.box[0] * map.element_bytes;
  const uint32_t rows = map.box_bytes() / row_bytes;
  for (uint32_t row = 0; row < rows; ++row) {
    uint32_t left = row;
    bool inside = true;
    int64_t from = 0;
    for (size_t d = 1; d < map.rank; ++d) {
      const int64_t at = first[d] + static_cast<int64_t>(left % map.box[d]);
      left /= map.box[d];
      inside = inside && at >= 0 && at < static_cast<int64_t>(map.sizes[d]);
      from += at * static_cast<int64_t>(map.strides[d - 1]);
    }
    for (uint32_t chunk = 0; chunk < row_bytes; chunk += kChunk) {
      unsigned char bytes[kChunk] = {};
      for (uint32_t e = 0; inside && e < kChunk; e += map.element_bytes) {
        const int64_t at = first[0] + static_cast<int64_t>((chunk + e) / map.element_bytes);
        if (at >= 0 && at < static_cast<int64_t>(map.sizes[0]))
          std::memcpy(bytes + e, map.at + from + at * map.element_bytes, map.element_bytes);
      }
      std::memcpy(shared + swizzled(to + row * row_bytes + chunk, swizzle), bytes, kChunk);
    }
  }
}

}  // namespace dstrain::emulated
