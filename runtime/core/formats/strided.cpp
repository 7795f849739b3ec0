#include "runtime/core/formats/strided.h"

#include <algorithm>
#include <vector>

namespace dstrain {

std::optional<int64_t> end_of_elements(Extents sizes, Extents strides, int64_t offset,
                                       int64_t element_bytes) {
  if (std::ranges::find(sizes, 0) != sizes.end()) return 0;
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return std::nullopt;
  }
  int64_t bytes = 0;
  if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element_bytes, &bytes))
    return std::nullopt;
  return last;
}

bool are_contiguous(Extents sizes, Extents strides) {
  if (std::ranges::find(sizes, 0) != sizes.end()) return true;
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != stride) return false;
    stride *= sizes[i];
  }
  return true;
}

void gather_elements(const char* from, Extents sizes, Extents strides, int64_t element_bytes,
                     int64_t begin, int64_t count, char* to) {
  std::vector<int64_t> index(sizes.size(), 0);
  int64_t at = 0, left = begin;
  for (size_t i = sizes.size(); i-- > 0;) {
    index[i] = left % sizes[i];
    left /= sizes[i];
    at += index[i] * strides[i];
  }
  for (int64_t k = 0; k < count; ++k) {
    std::copy_n(from + at * element_bytes, element_bytes, to + k * element_bytes);
    for (size_t i = index.size(); i-- > 0;) {
      at += strides[i];
      if (++index[i] < sizes[i]) break;
      at -= strides[i] * sizes[i];
      index[i] = 0;
    }
  }
}

}  // namespace dstrain
