#include <limits>

#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

// The packed bytes by the definition, block by block.
std::vector<double> packed_by_definition(const std::vector<double>& x) {
  const size_t n = x.size(), block = static_cast<size_t>(kQuantizedBlock);
  std::vector<float> scales;
  std::vector<double> codes;
  for (size_t first = 0; first < n; first += block) {
    double largest = 0;
    bool finite = true;
    const size_t end = std::min(n, first + block);
    for (size_t i = first; i < end; ++i) {
      finite = finite && std::isfinite(x[i]);
      largest = std::max(largest, std::fabs(x[i]));
    }
    float scale = static_cast<float>(largest) / 127.0f;
    if (scale < std::numeric_limits<float>::min()) scale = 0;
    if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
    scales.push_back(scale);
    for (size_t i = first; i < end; ++i) {
      const float code =
          scale > 0 ? std::nearbyint(static_cast<float>(x[i]) * (1.0f / scale)) : 0.0f;
      CHECK(std::fabs(code) <= 127);
      codes.push_back(static_cast<uint8_t>(static_cast<int8_t>(code)));
    }
  }
  std::vector<double> bytes;
  for (const float scale : scales) {
    uint8_t raw[4];
    std::memcpy(raw, &scale, sizeof raw);
    bytes.insert(bytes.end(), raw, raw + 4);
  }
  bytes.insert(bytes.end(), codes.begin(), codes.end());
  return bytes;
}

struct Quantized {
  std::vector<double> packed, back;
};

Quantized quantized(DType dtype, const std::vector<double>& x) {
  const auto n = static_cast<int64_t>(x.size());
  const Shape bytes{quantized_bytes(n)};
  const auto packed =
      run_everywhere({OpKind::quantize}, {{Shape{n}, dtype, x}}, {{bytes, DType::u8}})[0].values();
  const auto back =
      run_everywhere({OpKind::dequantize}, {{bytes, DType::u8, packed}}, {{Shape{n}, dtype}});
  return {packed, back[0].values()};
}

// Values of mixed size: the blocks' largest values differ by orders of magnitude.
std::vector<double> mixed_values(int64_t n, DType dtype) {
  std::vector<double> x = normal_values(n, 5);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] *= std::pow(10.0, static_cast<double>(i / 256 % 5) - 3);
  return rounded(x, dtype);
}

}  // namespace

TEST_CASE(
    "quantize has the definition's bits, and values come back within 1/254 of the block's "
    "largest") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : {1, 7, 16, 255, 256, 257, 4097, 20001}) {
      INFO(name_of(dtype) << ", " << n);
      const auto x = mixed_values(n, dtype);
      const Quantized q = quantized(dtype, x);
      CHECK(q.packed == packed_by_definition(x));
      // What the result's dtype rounds comes on top.
      const double rounding = dtype == DType::bf16  ? 0x1p-8
                              : dtype == DType::f16 ? 0x1p-11
                                                    : 0x1p-22;
      int64_t wrong = 0;
      for (size_t first = 0; first < x.size(); first += 256) {
        const size_t end = std::min(x.size(), first + 256);
        double largest = 0;
        for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
        for (size_t i = first; i < end; ++i) {
          const double bound =
              largest / 254 * 1.00001 + std::fabs(x[i]) * rounding * 1.01 + 0x1p-24;
          wrong +=
              !(std::fabs(q.back[i] - x[i]) <= (dtype == DType::f16 ? bound : bound - 0x1p-24));
        }
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("dequantize unpacks parts that were packed one by one") {
  for (const DType dtype : kRunTypes)
    for (const int64_t part : {1, 255, 600}) {
      const int64_t parts = 3;
      const auto x = mixed_values(parts * part, dtype);
      std::vector<double> packed, back;
      for (int64_t k = 0; k < parts; ++k) {
        const Quantized q = quantized(dtype, {x.begin() + k * part, x.begin() + (k + 1) * part});
        packed.insert(packed.end(), q.packed.begin(), q.packed.end());
        back.insert(back.end(), q.back.begin(), q.back.end());
      }
      const auto all = run_everywhere({OpKind::dequantize},
                                      {{Shape{parts, quantized_bytes(part)}, DType::u8, packed}},
                                      {{Shape{parts * part}, dtype}});
      CHECK(all[0].values() == back);
    }
}

TEST_CASE("the largest values of a block, of either sign, do not clip") {
  for (const DType dtype : kRunTypes) {
    const auto x = rounded({-3, 3, 1.5, 0.01, -0.0}, dtype);
    const Quantized q = quantized(dtype, x);
    CHECK(q.packed[4] == 256 - 127);
    CHECK(q.packed[5] == 127);
    CHECK(std::fabs(q.back[0] + 3) < 1e-6);
    CHECK(std::fabs(q.back[1] - 3) < 1e-6);
    CHECK(q.back[4] == 0);
  }
}

TEST_CASE("zeros and what is too small for a scale come back as zeros") {
  for (const DType dtype : kRunTypes) {
    const Quantized zeros = quantized(dtype, std::vector<double>(300, 0));
    CHECK(zeros.packed == std::vector<double>(static_cast<size_t>(quantized_bytes(300)), 0));
    CHECK(zeros.back == std::vector<double>(300, 0));
  }
  const auto tiny = rounded({1e-45, -1e-40, 1.1e-38, 1.4e-36}, DType::f32);
  CHECK(quantized(DType::f32, tiny).back == std::vector<double>(4, 0));
  const Quantized kept = quantized(DType::f32, rounded({1e-40, 1e-35}, DType::f32));
  CHECK(kept.back[0] == 0);
  CHECK(std::fabs(kept.back[1] / 1e-35 - 1) < 1e-6);
}

TEST_CASE("an inf or a NaN makes its block NaN and no other") {
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")})
    for (const DType dtype : kRunTypes)
      for (const size_t at : {size_t{256}, size_t{300}, size_t{511}}) {
        auto x = mixed_values(800, dtype);
        const Quantized good = quantized(dtype, x);
        x[at] = bad;
        const Quantized q = quantized(dtype, x);
        CHECK(q.packed == packed_by_definition(x));
        int64_t wrong = 0;
        for (size_t i = 0; i < x.size(); ++i)
          wrong += i / 256 == 1 ? !std::isnan(q.back[i]) : q.back[i] != good.back[i];
        CHECK(wrong == 0);
      }
}

TEST_CASE("the largest numbers of a dtype stay finite, but for f32's last bits") {
  for (const DType dtype : kRunTypes) {
    const double most = dtype == DType::f16    ? 65504
                        : dtype == DType::bf16 ? 0x1.fep127
                                               : 0x1.fffff0p127;
    for (const double back : quantized(dtype, {most, -most, most / 2}).back)
      CHECK(std::isfinite(back));
  }
}

}  // namespace dstrain::parity
