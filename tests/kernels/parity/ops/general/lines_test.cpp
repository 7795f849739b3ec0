// scan and sort, and take of integers, against their definitions: running sums in the order that docs/general-ops.md states, and
// stable orders.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/general/random_walk.h"

namespace dstrain::parity {
namespace {

// Lines of up to `most` elements in all, and how many planes of them.
struct RandomLines {
  Lines lines{};
  int64_t planes = 1;

  RandomLines(Draw& draw, int64_t most) {
    lines.apart = draw.once_in(2) ? 1 : draw(2, std::min<int64_t>(most / 2, 300));
    lines.size = draw(1, most / lines.apart);
    planes = draw(1, std::min<int64_t>(most / lines.apart / lines.size, 40));
  }
  int64_t elements() const { return planes * lines.apart * lines.size; }
  // Calls f(line) with the elements of each line of an operand with `size` elements in a line.
  template <class F>
  void for_each(int64_t size, const F& f) const {
    for (int64_t plane = 0; plane < planes; ++plane)
      for (int64_t column = 0; column < lines.apart; ++column) {
        std::vector<size_t> line;
        for (int64_t i = 0; i < size; ++i)
          line.push_back(static_cast<size_t>((plane * size + i) * lines.apart + column));
        f(line);
      }
  }
};

int64_t most_elements(uint64_t seed) {
  return seed % 20 == 0 ? 40000 : 2000;
}

// Returns the running sums of a line: blocks of 64 elements in f32, and the sums of these in f64.
std::vector<double> sums_of(const std::vector<double>& line, bool exclusive) {
  std::vector<double> sums;
  double before = 0;
  float few = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (i > 0 && i % 64 == 0) {
      before += static_cast<double>(few);
      few = 0;
    }
    const float with = few + static_cast<float>(line[i]);
    sums.push_back(static_cast<double>(
        static_cast<float>(before + static_cast<double>(exclusive ? few : with))));
    few = with;
  }
  return sums;
}

TEST_CASE("a scan has the running sums of lines in the order that is stated") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(seed);
    const DType dtype = kRunTypes[draw(0, 2)], result = draw.once_in(2) ? DType::f32 : dtype;
    const RandomLines of(draw, most_elements(seed));
    const ScanAttrs attrs{of.lines, draw.once_in(2), draw.once_in(2)};
    const Operand x = random_operand(of.elements(), dtype, seed + 1);
    std::vector<double> expected(x.values.size());
    double distance = 0;
    of.for_each(of.lines.size, [&](std::vector<size_t> line) {
      if (attrs.reversed) std::ranges::reverse(line);
      std::vector<double> values;
      for (const size_t i : line) values.push_back(x.values[i]);
      const std::vector<double> sums = sums_of(values, attrs.exclusive);
      double sum = 0, size = 1;
      for (size_t i = 0; i < line.size(); ++i) {
        const double exact = attrs.exclusive ? sum : sum + values[i];
        sum += values[i];
        size = std::max(size, std::abs(exact));
        distance = std::max(distance, std::abs(sums[i] - exact) / size);
        expected[line[i]] = sums[i];
      }
    });
    CHECK(distance < 2e-6);
    INFO("seed " << seed << ", " << name_of(dtype) << " to " << name_of(result) << ": " << of.planes
                 << " planes of " << of.lines.size << " x " << of.lines.apart);
    const Call call{.op = OpKind::scan, .attrs = attrs};
    const auto got = run_everywhere(call, {x}, {{x.shape, result}});
    CHECK(got[0].values() == rounded(expected, result));
    if (!draw.once_in(4)) continue;
    Call adds = call;
    adds.accumulate = true;
    const Operand before{x.shape, DType::f32, normal_values(of.elements(), seed + 2)};
    const auto more = run_at_offset(adds, {x}, {before}, 0);
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = static_cast<double>(static_cast<float>(rounded(before.values, DType::f32)[i]) +
                                        static_cast<float>(expected[i]));
    CHECK(more[0].values() == expected);
  }
}

TEST_CASE("a scan passes NaN and infinity on, and adds integers") {
  const double inf = HUGE_VAL, nan = std::nan("");
  const auto scan = [](const ScanAttrs& attrs, const Operand& x) {
    return run_everywhere({.op = OpKind::scan, .attrs = attrs}, {x}, {{x.shape, x.dtype}})[0]
        .values();
  };
  const Operand x{{6}, DType::f32, {1, inf, 2, nan, 3, -inf}};
  const std::vector<double> sums = scan({.lines = {3, 1}}, x);
  CHECK((sums[0] == 1 && sums[1] == inf && sums[2] == inf && std::isnan(sums[3]) &&
         std::isnan(sums[5])));
  const std::vector<double> before = scan({.lines = {3, 1}, .exclusive = true}, x);
  CHECK((before[0] == 0 && before[1] == 1 && before[2] == inf && before[3] == 0 &&
         std::isnan(before[4])));
  const Operand integers{{8}, DType::i32, {1, 16777217, -3, 4, 2147483647, 1, 0, 5}};
  CHECK(scan({.lines = {4, 2}}, integers) ==
        std::vector<double>{1, 16777217, -2, 16777221, 2147483645, 16777222, 2147483645, 16777227});
  CHECK(scan({.lines = {4, 1}, .reversed = true}, integers) ==
        std::vector<double>{16777219, 16777218, 1, 4, -2147483643, 6, 5, 5});
}

// Values of which many are equal, or are no numbers.
Operand random_keys(Draw& draw, int64_t elements, DType dtype) {
  const double special[] = {HUGE_VAL, -HUGE_VAL, std::nan(""), -0.0, 0.0, -std::nan("")};
  const int64_t kind = draw(0, 2), most = kind == 0 ? 4 : 1 << 20;
  std::vector<double> values;
  for (int64_t i = 0; i < elements; ++i)
    if (kind == 2 && dtype != DType::i32 && draw.once_in(3))
      values.push_back(special[draw(0, 5)]);
    else
      values.push_back(static_cast<double>(draw(-most, most)));
  return {{elements}, dtype, dtype == DType::i32 ? values : rounded(values, dtype)};
}

TEST_CASE("a sort has the order of lines, in which equal elements stay and NaN is the largest") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(5000 + seed);
    const DType dtype = draw.once_in(5) ? DType::i32 : kRunTypes[draw(0, 2)];
    const RandomLines of(draw, most_elements(seed));
    SortAttrs attrs{.lines = of.lines, .descending = draw.once_in(2)};
    attrs.kept = draw.once_in(2)   ? of.lines.size
                 : draw.once_in(2) ? std::min<int64_t>(of.lines.size, draw(1, 8))
                                   : draw(1, of.lines.size);
    const Operand x = random_keys(draw, of.elements(), dtype);
    std::vector<double> expected(static_cast<size_t>(of.planes * attrs.kept * of.lines.apart));
    std::vector<std::vector<int64_t>> orders;
    of.for_each(of.lines.size, [&](const std::vector<size_t>& line) {
      std::vector<int64_t>& order = orders.emplace_back(line.size());
      std::iota(order.begin(), order.end(), int64_t{0});
      const auto less = [&](int64_t a, int64_t b) {
        const double of_a = x.values[line[static_cast<size_t>(a)]],
                     of_b = x.values[line[static_cast<size_t>(b)]];
        return of_a < of_b || (std::isnan(of_b) && !std::isnan(of_a));
      };
      std::ranges::stable_sort(
          order, [&](int64_t a, int64_t b) { return attrs.descending ? less(b, a) : less(a, b); });
    });
    size_t number = 0;
    of.for_each(attrs.kept, [&](const std::vector<size_t>& line) {
      for (size_t i = 0; i < line.size(); ++i)
        expected[line[i]] = static_cast<double>(orders[number][i]);
      ++number;
    });
    INFO("seed " << seed << ", " << name_of(dtype) << ": " << attrs.kept << " of " << of.planes
                 << " planes of " << of.lines.size << " x " << of.lines.apart);
    const auto got = run_everywhere({.op = OpKind::sort, .attrs = attrs}, {x},
                                    {{{static_cast<int64_t>(expected.size())}, DType::i32}});
    CHECK(got[0].values() == expected);
  }
}

TEST_CASE("integers are taken as they are, and the smallest where there is none") {
  const Operand table{{4}, DType::i32, {16777217, -5, 2147483647, 3}};
  const Operand indices{{5}, DType::i32, {2, -4, 1, 4, 0}};
  const TakeAttrs attrs{.space = {5}, .indices = {{{.strides = {1}}, 1, 4}}};
  const auto got =
      run_everywhere({.op = OpKind::take, .attrs = attrs}, {table, indices}, {{{5}, DType::i32}});
  CHECK(got[0].values() == std::vector<double>{2147483647, 16777217, -5, -2147483648.0, 16777217});
}

}  // namespace
}  // namespace dstrain::parity
