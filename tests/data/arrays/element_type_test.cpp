#include "runtime/data/arrays/element_type.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/data/arrays/array_files.h"

namespace dstrain {
namespace {

// Reads values of a type at an odd address. Returns what fits.
template <class T, class From>
std::vector<T> converted(ElementType type, DType dtype, const std::vector<From>& values) {
  const std::string bytes = "." + bytes_of_values(values);
  const auto* const at = reinterpret_cast<const unsigned char*>(bytes.data()) + 1;
  const auto count = static_cast<int64_t>(values.size());
  std::vector<T> result(values.size());
  const int64_t unfit = convert_elements(type, at, count, dtype, result.data());
  CHECK(unfit == first_unfit(type, at, count, dtype));
  if (unfit >= 0) {
    CHECK(may_not_fit(type, dtype));
    result.resize(static_cast<size_t>(unfit));
  }
  return result;
}

template <class From>
std::vector<float> floats(ElementType type, const std::vector<From>& values) {
  return converted<float>(type, DType::f32, values);
}

template <class From>
std::vector<int32_t> integers(ElementType type, const std::vector<From>& values) {
  return converted<int32_t>(type, DType::i32, values);
}

template <class From>
void check_integers(ElementType type) {
  INFO(name_of(type));
  CHECK(size_of(type) == static_cast<int64_t>(sizeof(From)));
  constexpr From least = std::numeric_limits<From>::min(), most = std::numeric_limits<From>::max();
  CHECK(floats<From>(type, {least, 0, 1, most}) ==
        std::vector<float>{static_cast<float>(least), 0, 1, static_cast<float>(most)});
  std::vector<int32_t> all{0, 1, 100};
  if (std::in_range<int32_t>(least) && std::in_range<int32_t>(most)) {
    all.push_back(static_cast<int32_t>(least));
    all.push_back(static_cast<int32_t>(most));
    CHECK(!may_not_fit(type, DType::i32));
  } else {
    CHECK(may_not_fit(type, DType::i32));
  }
  CHECK(integers<From>(type, {0, 1, 100, least, most}) == [&] {
    std::vector<int32_t> expected{0, 1, 100};
    for (const From value : {least, most}) {
      if (!std::in_range<int32_t>(value)) break;
      expected.push_back(static_cast<int32_t>(value));
    }
    return expected;
  }());
}

}  // namespace

TEST_CASE("integers of every width are read as f32, and as i32 where they fit") {
  check_integers<uint8_t>(ElementType::u8);
  check_integers<int8_t>(ElementType::i8);
  check_integers<uint16_t>(ElementType::u16);
  check_integers<int16_t>(ElementType::i16);
  check_integers<uint32_t>(ElementType::u32);
  check_integers<int32_t>(ElementType::i32);
  check_integers<uint64_t>(ElementType::u64);
  check_integers<int64_t>(ElementType::i64);
  CHECK(floats<int64_t>(ElementType::i64, {16777217}) == std::vector<float>{16777216});
  CHECK(integers<uint8_t>(ElementType::boolean, {0, 1, 7}) == std::vector<int32_t>{0, 1, 1});
  CHECK(floats<uint8_t>(ElementType::boolean, {0, 1}) == std::vector<float>{0, 1});
}

TEST_CASE(
    "floats of every width are read as f32, and as i32 where they are whole and in its range") {
  CHECK(floats<uint16_t>(ElementType::f16, {0x3c00, 0xc500, 0x0001}) ==
        std::vector<float>{1, -5, 0x1p-24f});
  CHECK(floats<uint16_t>(ElementType::bf16, {0x3f80, 0xc0a0}) == std::vector<float>{1, -5});
  CHECK(floats<double>(ElementType::f64, {0.1, -2}) == std::vector<float>{0.1f, -2});
  CHECK(floats<double>(ElementType::f64, {3, 1e300}) == std::vector<float>{3});
  CHECK(floats<double>(ElementType::f64, {INFINITY, -INFINITY}) ==
        std::vector<float>{INFINITY, -INFINITY});
  CHECK(std::isnan(floats<double>(ElementType::f64, {NAN})[0]));
  CHECK(std::isnan(floats<float>(ElementType::f32, {NAN})[0]));
  CHECK(integers<float>(ElementType::f32, {5, -0.0f, 2.5f}) == std::vector<int32_t>{5, 0});
  CHECK(integers<float>(ElementType::f32, {-0x1p31f, 0x1p31f}) ==
        std::vector<int32_t>{std::numeric_limits<int32_t>::min()});
  CHECK(integers<double>(ElementType::f64, {2147483647, 2147483648.0}) ==
        std::vector<int32_t>{2147483647});
  CHECK(integers<float>(ElementType::f32, {NAN}).empty());
  CHECK(integers<uint16_t>(ElementType::f16, {0x4500, 0x7c00}) == std::vector<int32_t>{5});
  CHECK(integers<uint16_t>(ElementType::bf16, {0x40a0, 0x3f00}) == std::vector<int32_t>{5});
}

}  // namespace dstrain
