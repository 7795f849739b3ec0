// Sums of ranks' values on a device have the host's bits.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/library.h"
#include "runtime/comm/sums.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/devices/emulated_stream.h"

using namespace dstrain;

namespace {

// Random values of every magnitude, zeros of both signs, infinities and denormal values.
std::vector<float> any_values(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) {
    const unsigned kind = random() % 40;
    v = kind == 0   ? 0.0f
        : kind == 1 ? -0.0f
        : kind == 2 ? std::numeric_limits<float>::infinity()
        : kind == 3 ? normal(random) * 1e-39f
                    : std::ldexp(normal(random), static_cast<int>(random() % 24) - 12);
  }
  return values;
}

std::vector<std::byte> as_bytes(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::bf16)
      reinterpret_cast<bf16*>(bytes.data())[i] = from_float<bf16>(values[i]);
    else if (dtype == DType::f16)
      reinterpret_cast<f16*>(bytes.data())[i] = from_float<f16>(values[i]);
    else
      reinterpret_cast<float*>(bytes.data())[i] = values[i];
  }
  return bytes;
}

}  // namespace

TEST_CASE(
    "the sum of the ranks' values is in rank order, whatever rank adds and where values lie") {
  const auto device = make_emulated_device();
  const auto stream = device->make_stream();
  const auto sum =
      make_emulated_library(*static_cast<EmulatedStream*>(stream->native()))->make_rank_sum();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int ranks : {1, 2, 3, 5, 8, 9})
      for (const int64_t n : {int64_t{1}, int64_t{64}, int64_t{1003}}) {
        const int own = static_cast<int>(n) % ranks;
        const int64_t width = size_of(dtype), stride = n + 5, offset = n % 3;
        std::vector<std::vector<std::byte>> values;
        std::vector<const std::byte*> sources;
        std::vector<std::byte> others(static_cast<size_t>(stride * width * ranks));
        for (int r = 0; r < ranks; ++r) {
          values.push_back(as_bytes(any_values(n, static_cast<unsigned>(100 * ranks + r)), dtype));
          if (r != own)
            std::memcpy(others.data() + (r < own ? r : r - 1) * stride * width,
                        values.back().data(), values.back().size());
        }
        for (const auto& v : values) sources.push_back(v.data());
        std::vector<std::byte> expected(static_cast<size_t>(n * width));
        std::byte* const to = expected.data();
        sum_in_order(dtype, sources, {&to, 1}, n);

        INFO(name_of(dtype) << ", " << ranks << " ranks, " << n << " elements");
        const auto& mine = values[static_cast<size_t>(own)];
        std::vector<std::byte> in_place(static_cast<size_t>((n + offset) * width));
        std::memcpy(in_place.data() + offset * width, mine.data(), mine.size());
        std::vector<std::byte> apart(static_cast<size_t>(n * width) + 16, std::byte{77});
        std::byte* const place = in_place.data() + offset * width;
        sum->add(dtype, {others.data(), stride, place, own, ranks}, apart.data(), n, *stream);
        sum->add(dtype, {others.data(), stride, place, own, ranks}, place, n, *stream);
        stream->synchronize();
        CHECK(std::memcmp(apart.data(), expected.data(), expected.size()) == 0);
        CHECK(std::memcmp(place, expected.data(), expected.size()) == 0);
        CHECK(apart[expected.size()] == std::byte{77});
      }
}
