// Values in int4 (runtime/ir/quantized.h): packed, added, and packed again.
#include <limits>

#include "tests/ir/int4_definition.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

std::vector<float> floats(const Values& x) {
  return {x.begin(), x.end()};
}

// The packed bytes of one part by the definition.
Values int4_definition(const Values& x) {
  const std::vector<uint8_t> bytes = to_int4(floats(x));
  return {bytes.begin(), bytes.end()};
}

// The values that one part of n stands for.
Values from_int4(const Values& packed, size_t n) {
  const std::vector<float> x = dstrain::from_int4({packed.begin(), packed.end()}, n);
  return {x.begin(), x.end()};
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

constexpr int64_t kPartSizes[] = {1, 7, 16, 31, 32, 33, 127, 128, 129, 4097};

}  // namespace

TEST_CASE(
    "quantize_int4 has the definition's bits, and values come back within 1/15.8 of the block's "
    "largest, or clip and lose 0.171 of themselves") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : kPartSizes) {
      INFO(name_of(dtype) << ", " << n);
      const Values x = spread_values(n, dtype), packed = in_int4(dtype, x, n);
      CHECK(packed == int4_definition(x));
      const Values back = from_int4(packed, x.size());
      int64_t wrong = 0;
      double lost = 0, whole = 0;
      for (size_t first = 0; first < x.size(); first += kInt4Block) {
        const size_t end = std::min(x.size(), first + kInt4Block);
        double largest = 0;
        for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
        for (size_t i = first; i < end; ++i) {
          const double error = std::fabs(back[i] - x[i]);
          wrong += !(error <= std::max(largest / 15.8, 0.171 * std::fabs(x[i])));
          lost += error * error;
          whole += x[i] * x[i];
        }
      }
      CHECK(wrong == 0);
      if (n > 4096) CHECK(std::sqrt(lost / whole) < 0.09);  // of normal values
    }
}

TEST_CASE("int4: a block's largest values, of either sign or of both, and a quarter of zeros") {
  Values x(128, 0);
  x[0] = 3, x[31] = -3;  // the negative one counts
  x[40] = 5, x[41] = -4.9;
  x[64] = -1e-3;
  const Values packed = in_int4(DType::f32, x, 128), back = from_int4(packed, 128);
  CHECK(packed == int4_definition(x));
  CHECK(back[31] == Approx(-3).epsilon(0.06));
  CHECK(back[0] == Approx(3).epsilon(0.171));
  CHECK(back[0] < 2.75);
  CHECK(back[40] == Approx(5).epsilon(0.06));
  CHECK(back[41] == Approx(-4.9).epsilon(0.171));
  CHECK(std::fabs(back[64] + 1e-3) < 5 / 15.8);
  for (size_t i = 96; i < 128; ++i) CHECK(back[i] == 0);
  x.assign(128, 3.4e38);
  x[5] = -3.4028234663852886e38;
  for (const double v : from_int4(in_int4(DType::f32, x, 128), 128)) CHECK(std::isfinite(v));
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

TEST_CASE("int4: parts of many senders add up in their order") {
  const int64_t part = 700, senders = 35;
  Values packed, exact(static_cast<size_t>(part), 0);
  for (int64_t k = 0; k < senders; ++k) {
    const Values bytes =
        int4_definition(spread_values(part, DType::f32, 50 + static_cast<uint64_t>(k)));
    packed.insert(packed.end(), bytes.begin(), bytes.end());
    const Values values = from_int4(bytes, exact.size());
    for (size_t i = 0; i < exact.size(); ++i)
      exact[i] = static_cast<float>(exact[i]) + static_cast<float>(values[i]);
  }
  const Operand received{Shape{senders, 1, int4_bytes(part)}, DType::u8, packed};
  CHECK(run_everywhere(int4_call(OpKind::sum_int4, {.part = part}), {received},
                       {{Shape{part}, DType::f32}})[0]
            .values() == exact);
  CHECK(run_everywhere(int4_call(OpKind::requantize_int4, {.part = part}), {received},
                       {{Shape{1, int4_bytes(part)}, DType::u8}})[0]
            .values() == int4_definition(exact));
}

TEST_CASE(
    "int4: zeros and what is too small come back as zeros, an inf or a NaN makes its block NaN") {
  CHECK(in_int4(DType::f32, Values(130, 0), 130) ==
        Values(static_cast<size_t>(int4_bytes(130)), 0));
  const Values tiny = rounded({1e-45, -1e-40, 1.1e-38, 1.5e-36}, DType::f32);
  CHECK(from_int4(in_int4(DType::f32, tiny, 4), 4) == Values(4, 0));
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")})
    for (const DType dtype : kRunTypes)
      for (const size_t at : {size_t{128}, size_t{190}, size_t{255}}) {
        Values x = spread_values(400, dtype);
        const Values good = rounded(from_int4(in_int4(dtype, x, 400), 400), dtype);
        x[at] = bad;
        const Values packed = in_int4(dtype, x, 400);
        CHECK(packed == int4_definition(x));
        const Values sum = run_everywhere(int4_call(OpKind::sum_int4, {.part = 400}),
                                          {{Shape{1, 1, int4_bytes(400)}, DType::u8, packed}},
                                          {{Shape{400}, dtype}})[0]
                               .values();
        int64_t wrong = 0;
        for (size_t i = 0; i < x.size(); ++i)
          wrong += i / 128 == 1 ? !std::isnan(sum[i]) : sum[i] != good[i];
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
