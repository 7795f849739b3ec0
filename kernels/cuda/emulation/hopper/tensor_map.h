// Tensor maps: how a copy of the tensor memory engine finds a box of a tensor in global memory, and lays it out in shared
// memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/core/dtype.h"

namespace dstrain::emulated {

// How the 16-byte chunks of a box's rows are exchanged in shared memory. The value is that of a matrix descriptor.
enum class Swizzle : uint8_t { none = 0, bytes128 = 1, bytes64 = 2, bytes32 = 3 };

// Returns the bytes of a row within which chunks are exchanged; 16 for none.
constexpr uint32_t span_of(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 16 : 256u >> static_cast<unsigned>(swizzle);
}

// Returns where the byte at offset `at` of shared memory lies with a swizzle: the number of the chunk in its row is combined
// with that of the row of 128 bytes.
constexpr uint32_t swizzled(uint32_t at, Swizzle swizzle) {
  return at ^ ((at >> 7 & (span_of(swizzle) / 16 - 1)) << 4);
}

inline constexpr size_t kMostDimensions = 5;

// A tensor of `rank` dimensions, the first of neighbouring elements, and the box that a copy takes.
struct TensorMap {
  const unsigned char* at = nullptr;
  uint32_t element_bytes = 0;
  size_t rank = 0;
  std::array<uint64_t, kMostDimensions> sizes{};    // elements
  std::array<uint64_t, kMostDimensions> strides{};  // bytes, of dimensions 1 on, from [0] on
  std::array<uint32_t, kMostDimensions> box{};      // elements
  Swizzle swizzle = Swizzle::none;

  // Returns the bytes that a copy writes to shared memory.
  uint32_t box_bytes() const;
};

// Throws InternalError for a map that cuTensorMapEncodeTiled refuses.
void check_map(const TensorMap& map);

// Writes the box that begins at these coordinates to shared memory, at offset `to`; elements outside of the tensor are zeros.
void copy_box(unsigned char* shared, uint32_t to, const TensorMap& map,
              const std::array<int, kMostDimensions>& first, Swizzle swizzle);

}  // namespace dstrain::emulated
