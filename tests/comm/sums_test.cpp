#include "runtime/comm/sums.h"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain {
namespace {

// Calls f(vectors) with all vectors that this machine has.
template <class F>
void with_all_vectors(F&& f) {
  for (int i = 0; i <= static_cast<int>(widest_vectors()); ++i) {
    CAPTURE(i);
    f(static_cast<Vectors>(i));
  }
}

std::vector<std::byte> sum(DType dtype, const std::vector<std::vector<std::byte>>& parts, int64_t n,
                           Vectors most = widest_vectors()) {
  std::vector<const std::byte*> sources;
  for (const auto& part : parts) sources.push_back(part.data());
  std::vector<std::byte> result(static_cast<size_t>(n * size_of(dtype)) + 64, std::byte{0xa5});
  std::byte* const to = result.data();
  sum_in_order(dtype, sources, {&to, 1}, n, nullptr, most);
  for (size_t i = result.size() - 64; i < result.size(); ++i)
    REQUIRE(result[i] == std::byte{0xa5});  // nothing is written past the end
  result.resize(result.size() - 64);
  return result;
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// All 65536 bit patterns plus a number: the sum is rounded as dtype.h says, for every instruction set.
template <class T>
void check_all_patterns(DType dtype, float other, Vectors most) {
  std::vector<T> patterns, others(65536, from_float<T>(other)), expected;
  for (uint32_t i = 0; i < 65536; ++i) patterns.push_back({static_cast<uint16_t>(i)});
  for (T x : patterns) expected.push_back(from_float<T>(to_float(x) + to_float(others[0])));
  const auto result = sum(dtype, {bytes_of(patterns), bytes_of(others)}, 65536, most);
  for (size_t i = 0; i < expected.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, result.data() + 2 * i, 2);
    if (bits != expected[i].bits) FAIL("pattern " << i << ": " << bits << " " << expected[i].bits);
  }
}

TEST_CASE("16-bit sums round every bit pattern as the program's conversions do") {
  with_all_vectors([](Vectors most) {
    for (float other : {0.0f, 1.0f, -3e-5f, 60000.0f, 0.337f, 1e-7f}) {
      CAPTURE(other);
      check_all_patterns<f16>(DType::f16, other, most);
      check_all_patterns<bf16>(DType::bf16, other, most);
    }
  });
}

TEST_CASE("a sum is made in the order of the sources, once rounded, at every length") {
  with_all_vectors([](Vectors most) {
    for (int64_t n = 0; n <= 150; ++n) {
      std::vector<std::vector<std::byte>> parts;
      std::vector<float> expected(static_cast<size_t>(n));
      for (int r = 0; r < 5; ++r) {
        std::vector<float> part;
        for (int64_t i = 0; i < n; ++i)
          part.push_back((r % 2 ? -1.0f : 1.0f) * 1e7f / static_cast<float>(i + 3 * r + 1));
        for (size_t i = 0; i < part.size(); ++i)
          expected[i] = r == 0 ? part[i] : expected[i] + part[i];
        parts.push_back(bytes_of(part));
      }
      REQUIRE(sum(DType::f32, parts, n, most) == bytes_of(expected));
    }
  });
}

// As two machines share a sum: the ranks of the first before those of the second.
TEST_CASE("a sum handed on unrounded has the bits of one made in one place") {
  with_all_vectors([](Vectors most) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32}) {
      for (int64_t n : {0, 1, 7, 64, 131, 1000}) {
        std::vector<std::vector<std::byte>> parts;
        std::vector<const std::byte*> sources;
        for (uint64_t r = 0; r < 5; ++r) {
          std::vector<std::byte> part(static_cast<size_t>(n * size_of(dtype)));
          for (size_t i = 0; i < part.size(); ++i)
            part[i] = static_cast<std::byte>(mix64(r << 32 | i));
          // Small exponents: two NaNs may add to either, in any order.
          const auto element = static_cast<size_t>(size_of(dtype));
          for (size_t i = element - 1; i < part.size(); i += element) part[i] &= std::byte{0xbf};
          parts.push_back(std::move(part));
        }
        for (const auto& part : parts) sources.push_back(part.data());
        const auto whole = sum(dtype, parts, n, most);
        for (size_t first = 1; first < 5; ++first) {
          const std::span all(sources);
          std::vector<std::byte> running(static_cast<size_t>(n * size_of(running_dtype(dtype))));
          std::vector<std::byte> result(whole.size());
          std::byte* const to = result.data();
          running_sum(dtype, all.first(1), running.data(), n, nullptr, most);
          if (first > 1)
            running_sum(dtype, all.subspan(1, first - 1), running.data(), n, running.data(), most);
          sum_in_order(dtype, all.subspan(first), {&to, 1}, n, running.data(), most);
          CAPTURE(name_of(dtype), n, first);
          REQUIRE(result == whole);
        }
      }
    }
  });
}

TEST_CASE("f64 and i32 are added as they are") {
  REQUIRE(sum(DType::f64, {bytes_of<double>({1e16, 1}), bytes_of<double>({1, 2})}, 2) ==
          bytes_of<double>({1e16 + 1, 3}));
  REQUIRE(sum(DType::i32, {bytes_of<int32_t>({2147483647, -5}), bytes_of<int32_t>({1, 2})}, 2) ==
          bytes_of<int32_t>({-2147483647 - 1, -3}));
}

TEST_CASE("a sum can be written to every source in place") {
  std::vector<float> a(1003, 1.5f), b(1003, 2.25f);
  const std::array<std::byte*, 2> both{reinterpret_cast<std::byte*>(a.data()),
                                       reinterpret_cast<std::byte*>(b.data())};
  sum_in_order(DType::f32, std::array<const std::byte*, 2>{both[0], both[1]}, both, 1003);
  REQUIRE(a == std::vector<float>(1003, 3.75f));
  REQUIRE(b == a);
}

TEST_CASE("bytes have no sum") {
  REQUIRE_THROWS_WITH(sum(DType::u8, {bytes_of<uint8_t>({1})}, 1), "no sum of u8");
}

}  // namespace
}  // namespace dstrain
