// Elements of a tensor in a storage that may have them in any order: element (i, j, ...) is at offset + i * stride of the
// first dimension + j * stride of the second + .... Sizes and strides are not negative. All numbers are elements.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace dstrain {

using Extents = std::span<const int64_t>;

// Returns one more than the place of the last element in the storage; 0 if there is none. Nothing if that, or its bytes,
// overflows.
std::optional<int64_t> end_of_elements(Extents sizes, Extents strides, int64_t offset,
                                       int64_t element_bytes);

// Returns whether the elements lie one after the other, the last dimension first.
bool are_contiguous(Extents sizes, Extents strides);

// Copies elements [begin, begin + count) of the tensor, counted with the last dimension first, to `to`. `from` is the
// storage from the tensor's first element on.
void gather_elements(const char* from, Extents sizes, Extents strides, int64_t element_bytes,
                     int64_t begin, int64_t count, char* to);

}  // namespace dstrain
