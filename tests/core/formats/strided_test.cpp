#include "runtime/core/formats/strided.h"

#include <catch2/catch.hpp>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace dstrain {
namespace {

using Numbers = std::vector<int64_t>;

TEST_CASE("the end of elements in a storage is behind the last one, unless it overflows") {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  const auto end = [](const Numbers& sizes, const Numbers& strides, int64_t offset) {
    return end_of_elements(sizes, strides, offset, 4);
  };
  CHECK(end({}, {}, 3) == 4);
  CHECK(end({2, 3}, {3, 1}, 1) == 7);
  CHECK(end({2, 3}, {0, 2}, 0) == 5);
  CHECK(end({most, 0}, {most, 1}, most) == 0);
  CHECK_FALSE(end({most}, {2}, 0));
  CHECK_FALSE(end({2}, {1}, most));
  CHECK_FALSE(end({most / 2}, {1}, 0));  // its bytes
}

TEST_CASE("elements are contiguous whatever the strides of dimensions of one element are") {
  CHECK(are_contiguous(Numbers{2, 1, 3}, Numbers{3, 7, 1}));
  CHECK(are_contiguous(Numbers{0, 3}, Numbers{5, 5}));
  CHECK_FALSE(are_contiguous(Numbers{2, 3}, Numbers{1, 2}));
  CHECK_FALSE(are_contiguous(Numbers{2, 3}, Numbers{0, 1}));
}

TEST_CASE("any part of strided elements is gathered in their order") {
  std::string storage(24, '\0');
  std::iota(storage.begin(), storage.end(), 'a');
  const Numbers sizes{2, 3, 2}, strides{1, 8, 2};
  std::string whole(12, '\0');
  gather_elements(storage.data(), sizes, strides, 1, 0, 12, whole.data());
  CHECK(whole == "acikqsbdjlrt");
  for (int64_t begin = 0; begin < 12; ++begin)
    for (int64_t count = 0; begin + count <= 12; ++count) {
      std::string part(static_cast<size_t>(count), '\0');
      gather_elements(storage.data(), sizes, strides, 1, begin, count, part.data());
      CHECK(part == whole.substr(static_cast<size_t>(begin), static_cast<size_t>(count)));
    }
}

}  // namespace
}  // namespace dstrain
