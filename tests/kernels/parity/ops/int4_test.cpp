// Values in int4 (runtime/ir/quantized.h): packed, added, and packed again.
#include <bit>
#include <limits>

#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

// The packed bytes of one part by the definition, block by block.
Values int4_definition(const Values& x) {
  const size_t n = x.size(), block = static_cast<size_t>(kInt4Block);
  Values scales;
  std::vector<int> codes;
  for (size_t first = 0; first < n; first += block) {
    const size_t end = std::min(n, first + block);
    double largest = 0;
    bool finite = true;
    for (size_t i = first; i < end; ++i) {
      finite = finite && std::isfinite(x[i]);
      largest = std::max(largest, std::fabs(x[i]));
    }
    float scale = static_cast<float>(largest) / 7.0f;
    if (scale < std::numeric_limits<float>::min()) scale = 0;
    // The next bf16, unless it is one.
    const auto bits = std::bit_cast<uint32_t>(scale);
    scale = std::bit_cast<float>(bits % 0x10000 == 0 ? bits : (bits / 0x10000 + 1) * 0x10000);
    if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
    const uint32_t stored = std::bit_cast<uint32_t>(scale) >> 16;
    scales.insert(scales.end(),
                  {static_cast<double>(stored & 255), static_cast<double>(stored >> 8)});
    for (size_t i = first; i < end; ++i) {
      const float code =
          scale > 0 ? std::nearbyint(static_cast<float>(x[i]) * (1.0f / scale)) : 0.0f;
      CHECK(std::fabs(code) <= 7);
      codes.push_back(static_cast<int>(code) & 15);
    }
  }
  Values bytes = scales;
  codes.resize((n + 1) / 2 * 2);
  for (size_t i = 0; i < codes.size(); i += 2) bytes.push_back(codes[i] | codes[i + 1] << 4);
  return bytes;
}

// The values that one part of n stands for.
Values from_int4(const Values& packed, size_t n) {
  const size_t blocks = (n + 63) / 64;
  Values x;
  for (size_t i = 0; i < n; ++i) {
    const auto byte = [&](size_t k) { return static_cast<uint32_t>(packed[k]); };
    const auto scale =
        std::bit_cast<float>(byte(2 * (i / 64)) << 16 | byte(2 * (i / 64) + 1) << 24);
    const auto code = static_cast<int>(byte(2 * blocks + i / 2) >> 4 * (i % 2) & 15);
    x.push_back(static_cast<float>(code < 8 ? code : code - 16) * scale);
  }
  return x;
}

Values part_at(const Values& x, int64_t part, int64_t n) {
  return {x.begin() + part * n, x.begin() + (part + 1) * n};
}

// Values of mixed size: the blocks' largest values differ by orders of magnitude.
Values spread_values(int64_t n, DType dtype, uint64_t seed = 5) {
  Values x = normal_values(n, seed);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= std::pow(10.0, static_cast<double>(i / 64 % 5) - 3);
  return rounded(x, dtype);
}

Call int4_call(OpKind op, const Int4Attrs& attrs) {
  Call call;
  call.op = op;
  call.attrs = attrs;
  return call;
}

Values in_int4(DType dtype, const Values& x, int64_t part, int64_t group = 1) {
  const auto n = static_cast<int64_t>(x.size());
  return run_everywhere(int4_call(OpKind::quantize_int4, {.part = part, .group = group}),
                        {{Shape{n}, dtype, x}}, {{Shape{n / part, int4_bytes(part)}, DType::u8}})[0]
      .values();
}

// Three senders' parts of two sums, packed, and the sums in f32.
struct Received {
  static constexpr int64_t senders = 3, sums = 2;
  Values packed;
  std::vector<Values> exact{2};

  explicit Received(int64_t part) {
    exact.assign(2, Values(static_cast<size_t>(part), 0));
    for (int64_t k = 0; k < senders; ++k)
      for (size_t m = 0; m < 2; ++m) {
        const Values bytes =
            int4_definition(spread_values(part, DType::f32, 10 + static_cast<uint64_t>(k) * 2 + m));
        packed.insert(packed.end(), bytes.begin(), bytes.end());
        const Values values = from_int4(bytes, static_cast<size_t>(part));
        for (size_t i = 0; i < values.size(); ++i)
          exact[m][i] = static_cast<float>(exact[m][i]) + static_cast<float>(values[i]);
      }
  }
  Operand operand(int64_t part) const {
    return {Shape{senders, sums, int4_bytes(part)}, DType::u8, packed};
  }
};

constexpr int64_t kPartSizes[] = {1, 7, 16, 63, 64, 65, 4097};

}  // namespace

TEST_CASE(
    "quantize_int4 has the definition's bits, and values come back within 1/13.9 of the block's "
    "largest") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : kPartSizes) {
      INFO(name_of(dtype) << ", " << n);
      const Values x = spread_values(n, dtype), packed = in_int4(dtype, x, n);
      CHECK(packed == int4_definition(x));
      const Values back = from_int4(packed, x.size());
      int64_t wrong = 0;
      for (size_t first = 0; first < x.size(); first += 64) {
        const size_t end = std::min(x.size(), first + 64);
        double largest = 0;
        for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
        for (size_t i = first; i < end; ++i) wrong += std::fabs(back[i] - x[i]) > largest / 13.89;
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE(
    "quantize_int4 packs parts by themselves, for ranks in the order of their numbers in a host") {
  const int64_t part = 75, parts = 6;
  const Values x = spread_values(parts * part, DType::f32);
  for (const int64_t group : {1, 2, 3, 6}) {
    const Values packed = in_int4(DType::f32, x, part, group);
    for (int64_t host = 0; host < parts / group; ++host)
      for (int64_t local = 0; local < group; ++local) {
        const int64_t from = host * group + local, to = local * (parts / group) + host;
        CHECK(part_at(packed, to, int4_bytes(part)) == int4_definition(part_at(x, from, part)));
      }
  }
}

TEST_CASE("sum_int4 adds in f32 in the order of the senders, and rounds once") {
  for (const int64_t part : kPartSizes) {
    const Received received(part);
    for (const DType dtype : kRunTypes)
      for (const bool accumulate : {false, true}) {
        INFO(name_of(dtype) << ", " << part << ", " << accumulate);
        const Values before = rounded(normal_values(2 * part, 3), dtype);
        Call call = int4_call(OpKind::sum_int4, {.part = part});
        call.accumulate = accumulate;
        Values expected;
        for (size_t m = 0; m < 2; ++m)
          for (size_t i = 0; i < static_cast<size_t>(part); ++i) {
            const auto sum = static_cast<float>(received.exact[m][i]);
            const auto old = static_cast<float>(before[m * static_cast<size_t>(part) + i]);
            expected.push_back(accumulate ? old + sum : sum);
          }
        CHECK(run_everywhere(call, {received.operand(part)}, {{Shape{2 * part}, dtype, before}})[0]
                  .values() == rounded(expected, dtype));
        call.attrs = Int4Attrs{.part = part, .first = 1};
        CHECK(run_everywhere(call, {received.operand(part)},
                             {{Shape{part}, dtype, part_at(before, 1, part)}})[0]
                  .values() == rounded(part_at(expected, 1, part), dtype));
      }
  }
}

TEST_CASE("sum_int4 unpacks the parts of one sender") {
  const int64_t part = 75;
  const Values x = spread_values(3 * part, DType::f32), packed = in_int4(DType::f32, x, part);
  const Values last = run_everywhere(int4_call(OpKind::sum_int4, {.part = part, .first = 2}),
                                     {{Shape{3, int4_bytes(part)}, DType::u8, packed}},
                                     {{Shape{part}, DType::f32}})[0]
                          .values();
  CHECK(last == from_int4(part_at(packed, 2, int4_bytes(part)), static_cast<size_t>(part)));
}

TEST_CASE("requantize_int4 packs the sums") {
  for (const int64_t part : kPartSizes) {
    const Received received(part);
    const Values packed =
        run_everywhere(int4_call(OpKind::requantize_int4, {.part = part}), {received.operand(part)},
                       {{Shape{2, int4_bytes(part)}, DType::u8}})[0]
            .values();
    for (size_t m = 0; m < 2; ++m)
      CHECK(part_at(packed, static_cast<int64_t>(m), int4_bytes(part)) ==
            int4_definition(received.exact[m]));
  }
}

TEST_CASE(
    "int4: zeros and what is too small come back as zeros, an inf or a NaN makes its block NaN") {
  CHECK(in_int4(DType::f32, Values(130, 0), 130) ==
        Values(static_cast<size_t>(int4_bytes(130)), 0));
  const Values tiny = rounded({1e-45, -1e-40, 1.1e-38, 8e-38}, DType::f32);
  CHECK(from_int4(in_int4(DType::f32, tiny, 4), 4) == Values(4, 0));
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")})
    for (const DType dtype : kRunTypes)
      for (const size_t at : {size_t{64}, size_t{90}, size_t{127}}) {
        Values x = spread_values(200, dtype);
        const Values good = from_int4(in_int4(dtype, x, 200), 200);
        x[at] = bad;
        const Values packed = in_int4(dtype, x, 200);
        CHECK(packed == int4_definition(x));
        const Values sum = run_everywhere(int4_call(OpKind::sum_int4, {.part = 200}),
                                          {{Shape{1, 1, int4_bytes(200)}, DType::u8, packed}},
                                          {{Shape{200}, DType::f32}})[0]
                               .values();
        int64_t wrong = 0;
        for (size_t i = 0; i < x.size(); ++i)
          wrong += i / 64 == 1 ? !std::isnan(sum[i]) : sum[i] != good[i];
        CHECK(wrong == 0);
      }
}

TEST_CASE("error_squares adds the squares of what differs, and of the first operand") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : {1, 7, 4096, 10001}) {
      const Values x = rounded(normal_values(n, 1), DType::f32),
                   y = rounded(normal_values(n, 2), dtype);
      double error = 0, whole = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double wrong = static_cast<float>(x[i]) - static_cast<float>(y[i]);
        error += wrong * wrong;
        whole += x[i] * x[i];
      }
      const Values sums =
          run_everywhere({OpKind::error_squares}, {{Shape{n}, DType::f32, x}, {Shape{n}, dtype, y}},
                         {{Shape{2}, DType::f64}})[0]
              .values();
      CHECK(sums[0] == Approx(error).epsilon(1e-12));
      CHECK(sums[1] == Approx(whole).epsilon(1e-12));
    }
}

}  // namespace dstrain::parity
