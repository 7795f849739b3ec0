// The order of elements in a sort, as unsigned integers that every device compares: NaN is larger than every number, -0 is 0,
// and of equal elements the first one comes first.
#pragma once

#include <cstdint>

namespace dstrain {

// Returns an integer that is less for a smaller number, of the bits of an f32.
constexpr uint32_t order_of_float(uint32_t bits) {
  constexpr uint32_t kSign = 0x80000000u, kInfinity = 0x7f800000u;
  if ((bits & ~kSign) > kInfinity) return ~0u;
  if (bits == kSign) bits = 0;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

// The same of an i32.
constexpr uint32_t order_of_integer(int32_t x) {
  return static_cast<uint32_t>(x) ^ 0x80000000u;
}

// Returns a number that is different for each element of a line, and less for one that comes first.
constexpr uint64_t sort_key(uint32_t order, bool descending, int64_t index) {
  return static_cast<uint64_t>(descending ? ~order : order) << 32 | static_cast<uint64_t>(index);
}

// Returns the place of the element in its line.
constexpr int32_t index_of_key(uint64_t key) {
  return static_cast<int32_t>(key & 0xffffffffu);
}

}  // namespace dstrain
