// map: formulas of any kind against their values in double precision.
#include "runtime/ir/formula/formula.h"
#include "runtime/ir/views/broadcast.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

const Formula kX = Formula::input(0), kY = Formula::input(1), kZ = Formula::input(2);

Call call_of(const Formula& formula) {
  return {.op = OpKind::map, .attrs = MapAttrs{formula}};
}

// The operands of a map of `rows` rows of `columns` columns: one with all elements, and two as given.
std::vector<Operand> operands_of(int64_t rows, int64_t columns, const Shape& second,
                                 const Shape& third, DType dtype) {
  const auto make = [&](const Shape& shape, uint64_t seed, DType type) {
    return Operand{shape, type, rounded(normal_values(shape.elements(), seed), type)};
  };
  return {make({rows, columns}, 1, dtype), make(second, 2, dtype), make(third, 3, DType::f32)};
}

std::vector<double> expected_of(const Formula& formula, const std::vector<Operand>& in) {
  const int64_t columns = in[0].shape[-1];
  std::vector<double> result;
  for (int64_t i = 0; i < in[0].shape.elements(); ++i) {
    std::vector<double> values;
    for (const Operand& operand : in) {
      const Broadcast way = broadcast_of(in[0].shape, operand.shape);
      const int64_t at = way == Broadcast::none      ? i
                         : way == Broadcast::columns ? i % columns
                         : way == Broadcast::rows    ? i / columns
                                                     : 0;
      values.push_back(operand.values[static_cast<size_t>(at)]);
    }
    result.push_back(formula.value(values));
  }
  return result;
}

const Formula kFormulas[] = {
    kX + kY * kZ,
    (kX - kY) / (kZ * kZ + 1),
    minimum(maximum(kX, kY), 2 * kZ),
    select(less(kX, kY), kX* kZ, kY / 2),
    logarithm(1 + exponential(kX)) + kY - kZ,
    kX / square_root(kY* kY + kZ * kZ + 0.1f),
    5 * tangent(kX / 5) * sigmoid(kY) + absolute(kZ),
    sine(kX) * cosine(kY) - gelu(kZ),
    error_function(kX) + rounded_down(kY) * rounded(4 * kZ),
    power(absolute(kX) + 0.1f, kY) + kZ,
    kX + remainder(8 * kX, absolute(kY) + 0.5f) * less(kZ, 0),
};

TEST_CASE("a map has its formula's values at every shape, dtype, start and thread count") {
  Sample sample = sample_if_emulated(4);
  for (DType dtype : kRunTypes)
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 17}, {40, 5}, {7, 300}, {2, 9000}})
      for (const Formula& formula : kFormulas)
        for (const auto& [second, third] :
             {std::pair<Shape, Shape>{{rows, columns}, {rows, columns}},
              {{columns}, {rows, 1}},
              {{1}, {columns}}}) {
          if (!sample.takes()) continue;
          INFO(name_of(dtype) << " " << rows << " x " << columns << ", operands "
                              << to_string(second) << " and " << to_string(third));
          const std::vector<Operand> in = operands_of(rows, columns, second, third, dtype);
          const auto got = run_everywhere(call_of(formula), in, {{in[0].shape, dtype}});
          require_close("map", got[0].values(), expected_of(formula, in), tolerance_of(dtype, 4));
        }
}

TEST_CASE("NaN, infinity and zeros go through a map as through the functions of C") {
  const double inf = HUGE_VAL, nan = std::nan("");
  const std::vector<double> a{0, -0.0, 1, -1, 100, -100, inf, -inf, nan, 2, 3e38, -3e38, 1e-30},
      b{0, 0.0, nan, 1, -1, inf, inf, 1, 1, nan, 1, -inf, 0};
  const Shape shape{static_cast<int64_t>(a.size())};
  for (const Formula& formula : {maximum(kX, kY),
                                 minimum(kX, kY),
                                 less(kX, kY),
                                 select(kX, kY, 7),
                                 -kX,
                                 absolute(kX),
                                 exponential(kX),
                                 logarithm(kX),
                                 square_root(kX),
                                 tangent(kX),
                                 sigmoid(kX),
                                 kX / kY,
                                 kX + kY,
                                 kX * kY,
                                 error_function(kX),
                                 rounded_down(kX),
                                 rounded(kX),
                                 power(kX, kY),
                                 remainder(kX, kY),
                                 rounded_down(0.3f * kX),
                                 rounded(0.5f * kX),
                                 truncated(0.4f * kX)}) {
    const std::vector<Operand> in{{shape, DType::f32, rounded(a, DType::f32)},
                                  {shape, DType::f32, rounded(b, DType::f32)}};
    const auto got = run_everywhere(call_of(formula), in, {{shape, DType::f32}})[0].values();
    const std::vector<double> expected = expected_of(formula, in);
    for (size_t i = 0; i < got.size(); ++i) {
      INFO("function " << static_cast<int>(formula.steps().back().fn) << " of " << a[i] << " and "
                       << b[i]);
      const auto in_f32 = static_cast<double>(static_cast<float>(expected[i]));
      if (std::isnan(expected[i]))
        CHECK(std::isnan(got[i]));
      else
        CHECK(got[i] == Approx(in_f32).epsilon(1e-5).margin(1e-30));
    }
  }
}

TEST_CASE("erf is near that of C in relative terms, also where it is small") {
  std::vector<double> points;
  for (double x = 1e-12; x < 12; x *= 1.01) points.insert(points.end(), {x, -x});
  const Shape shape{static_cast<int64_t>(points.size())};
  const std::vector<Operand> in{{shape, DType::f32, rounded(points, DType::f32)}};
  const auto got = run_everywhere(call_of(error_function(kX)), in, {{shape, DType::f32}});
  const std::vector<double> values = got[0].values();
  for (size_t i = 0; i < values.size(); ++i)
    CHECK(values[i] == Approx(std::erf(in[0].values[i])).epsilon(4e-7));
}

// The ops for certain formulas round in other places.
TEST_CASE("a map is near the op that is made for its formula") {
  for (DType dtype : kRunTypes) {
    const Shape shape{5, 400};
    const auto operand = [&](uint64_t seed) {
      return Operand{shape, dtype, rounded(normal_values(2000, seed, 2), dtype)};
    };
    const auto near = [&](const Formula& formula, const Call& call, size_t count) {
      std::vector<Operand> in;
      for (size_t i = 0; i < count; ++i) in.push_back(operand(i + 1));
      const auto general = run_everywhere(call_of(formula), in, {{shape, dtype}});
      const auto special = run_everywhere(call, in, {{shape, dtype}});
      require_close("map", general[0].values(), special[0].values(),
                    {2 * rounding_of(dtype).relative + 2e-6, 1e-6});
    };
    near(relu(kX), {.op = OpKind::activation, .attrs = ActivationAttrs{Activation::relu}}, 1);
    near(gelu(kX), {.op = OpKind::activation, .attrs = ActivationAttrs{Activation::gelu}}, 1);
    near(gelu_erf(kX), {.op = OpKind::activation, .attrs = ActivationAttrs{Activation::gelu_erf}},
         1);
    near(silu(kX) * kY, {.op = OpKind::gated, .attrs = ActivationAttrs{Activation::silu}}, 2);
    near(kX * 0.3f, {.op = OpKind::scale, .attrs = ScaleAttrs{0.3f}}, 1);
    near(kX + kY, {.op = OpKind::add}, 2);
  }
}

}  // namespace
}  // namespace dstrain::parity
