// unpack_weight against the definition (runtime/core/blocks).
#include <limits>

#include "runtime/core/blocks/weight_blocks.h"
#include "tests/kernels/parity/ops/packed_bytes.h"

namespace dstrain::parity {
namespace {

constexpr BlockFormat kFormats[] = {BlockFormat::int8, BlockFormat::nf4};

// The values that the groups stand for, rounded once to `dtype`.
std::vector<double> unpacked(BlockFormat format, const std::string& packed, int64_t n,
                             DType dtype) {
  std::vector<float> y(static_cast<size_t>(n));
  unpack_groups(format, reinterpret_cast<const std::byte*>(packed.data()), n, y.data());
  return rounded({y.begin(), y.end()}, dtype);
}

std::vector<double> run_unpack(BlockFormat format, const std::string& packed, const Shape& shape,
                               DType dtype) {
  Call call{OpKind::unpack_weight};
  call.attrs = UnpackAttrs{format};
  return run_everywhere(call, {packed_of(Shape{static_cast<int64_t>(packed.size())}, packed)},
                        {{shape, dtype}})[0]
      .values();
}

}  // namespace

TEST_CASE("unpack_weight gives the values of packed weights, rounded once") {
  for (const BlockFormat format : kFormats)
    for (const DType dtype : kRunTypes)
      for (const Shape& shape :
           {Shape{1, 1}, Shape{3, 5}, Shape{1, 63}, Shape{4, 16}, Shape{5, 13}, Shape{7, 146},
            Shape{32, 32}, Shape{25, 41}, Shape{64, 257}, Shape{96, 171}}) {
        const int64_t n = shape.elements();
        CAPTURE(name_of(format), name_of(dtype), n);
        std::vector<float> x;
        for (const double v : normal_values(n, static_cast<uint64_t>(n))) {
          const auto block = static_cast<double>(x.size() / 64 % 5);
          x.push_back(static_cast<float>(v * std::pow(10.0, block - 3)));
        }
        if (n > 300) std::fill_n(x.begin() + 128, 64, 0.0f);
        std::string packed(static_cast<size_t>(packed_bytes(format, n)), '\0');
        REQUIRE(pack_groups(format, x.data(), n, reinterpret_cast<std::byte*>(packed.data())));
        CHECK(run_unpack(format, packed, shape, dtype) == unpacked(format, packed, n, dtype));
      }
}

TEST_CASE("unpack_weight has the value of every code at scales of every size") {
  for (const BlockFormat format : kFormats)
    for (const DType dtype : kRunTypes) {
      CAPTURE(name_of(format), name_of(dtype));
      const int64_t groups = 3, n = groups * kWeightGroup;
      std::string packed;
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t b = 0; b < kWeightGroup / kWeightBlock; ++b) {
          const float scale = std::ldexp(1.234567f, static_cast<int>(16 * g + b) * 5 - 148);
          packed.append(reinterpret_cast<const char*>(&scale), sizeof scale);
        }
        for (int64_t i = 0; i < group_bytes(format) - kWeightScales; ++i)
          packed.push_back(static_cast<char>(i * 37 + g));
      }
      CHECK(run_unpack(format, packed, Shape{n}, dtype) == unpacked(format, packed, n, dtype));
    }
}

}  // namespace dstrain::parity
