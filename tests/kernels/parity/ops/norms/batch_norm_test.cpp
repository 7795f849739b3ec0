// batch_norm and its gradient against their definitions in double precision.
#include <cmath>

#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/general/random_walk.h"

namespace dstrain::parity {
namespace batch_norms {
namespace {

using Values = std::vector<double>;

struct Case {
  int64_t rows = 0, columns = 0;
  DType dtype = DType::f32;
  BatchNormAttrs attrs{};
  bool adds = false;
  Operand x{}, weight{}, bias{}, residual{}, d_y{};
  Values y{}, mean{}, variance{};

  Case(int64_t r, int64_t c, DType type, bool relu, bool with_residual, double centre,
       uint64_t seed)
      : rows(r), columns(c), dtype(type), attrs{0.125f, relu}, adds(with_residual) {
    const auto of = [&](const Shape& shape, uint64_t n, double offset) {
      Values values = normal_values(shape.elements(), seed + n);
      for (double& value : values) value += offset;
      return Operand{shape, type, rounded(values, type)};
    };
    x = of({r, c}, 1, centre);
    weight = of({c}, 2, 1);
    bias = of({c}, 3, 0);
    residual = adds ? of({r, c}, 4, 0) : absent();
    d_y = of({r, c}, 5, 0.25);
    for (int64_t column = 0; column < c; ++column) add_moments(column);
    for (int64_t i = 0; i < r * c; ++i) {
      const double value = normal(i) * weight.values[at(i % c)] + bias.values[at(i % c)] +
                           (adds ? residual.values[at(i)] : 0);
      y.push_back(relu ? std::max(0.0, value) : value);
    }
  }

  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  double root(int64_t column) const {
    return std::sqrt(variance[at(column)] + static_cast<double>(attrs.eps));
  }
  double normal(int64_t i) const {
    return (x.values[at(i)] - mean[at(i % columns)]) / root(i % columns);
  }

 private:
  void add_moments(int64_t column) {
    double sum = 0, squares = 0;
    for (int64_t i = column; i < rows * columns; i += columns) sum += x.values[at(i)];
    const double centre = sum / static_cast<double>(rows);
    for (int64_t i = column; i < rows * columns; i += columns)
      squares += (x.values[at(i)] - centre) * (x.values[at(i)] - centre);
    mean.push_back(centre);
    variance.push_back(squares / static_cast<double>(rows));
  }
};

// The gradients of a case whose results are those that a kernel has rounded.
struct Gradients {
  Values d_x{}, d_weight{}, d_bias{}, d_residual{};

  Gradients(const Case& c, const Values& y) {
    d_weight.assign(c.at(c.columns), 0);
    d_bias.assign(c.at(c.columns), 0);
    for (int64_t i = 0; i < c.rows * c.columns; ++i) {
      const double g = c.attrs.relu && !(y[c.at(i)] > 0) ? 0 : c.d_y.values[c.at(i)];
      d_residual.push_back(g);
      d_bias[c.at(i % c.columns)] += g;
      d_weight[c.at(i % c.columns)] += g * c.normal(i);
    }
    const auto n = static_cast<double>(c.rows);
    for (int64_t i = 0; i < c.rows * c.columns; ++i) {
      const size_t column = c.at(i % c.columns);
      d_x.push_back(
          c.weight.values[column] / c.root(i % c.columns) *
          (d_residual[c.at(i)] - d_bias[column] / n - c.normal(i) * d_weight[column] / n));
    }
  }
};

TEST_CASE("a batch norm has the moments of columns, a residual and a relu, and their gradients") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(9000 + seed);
    const DType dtype = kRunTypes[draw(0, 2)];
    const int64_t rows = draw.once_in(4) ? draw(500, 2500) : draw(2, 60);
    const bool relu = draw.once_in(2), adds = draw.once_in(2);
    // A mean far from 0 would cancel in sums of squares.
    const double centre = draw.once_in(2) ? 0 : 8;
    const Case c(rows, draw(1, 70), dtype, relu, adds, centre, 10 * seed);
    INFO("seed " << seed << ", " << name_of(dtype) << " " << rows << " x " << c.columns);
    const Shape columns{c.columns};
    const auto got = run_everywhere({.op = OpKind::batch_norm, .attrs = c.attrs},
                                    {c.x, c.weight, c.bias, c.residual},
                                    {{c.x.shape, dtype}, {columns}, {columns}});
    require_near("y", got[0].values(), c.y, dtype, 2e-6);
    require_near("mean", got[1].values(), c.mean, DType::f32, 1e-6);
    require_near("variance", got[2].values(), c.variance, DType::f32, 1e-6);
    const Operand y = relu ? Operand{c.x.shape, dtype, got[0].values()} : absent();
    const Operand mean{columns, DType::f32, got[1].values()},
        variance{columns, DType::f32, got[2].values()};
    const auto back = run_everywhere(
        {.op = OpKind::batch_norm_grad, .attrs = c.attrs},
        {c.d_y, c.x, c.weight, mean, variance, y},
        {{c.x.shape, dtype}, {columns}, {columns}, adds ? Operand{c.x.shape, dtype} : absent()});
    const Gradients expected(c, got[0].values());
    require_near("d_x", back[0].values(), expected.d_x, dtype, 4e-6);
    require_near("d_weight", back[1].values(), expected.d_weight, DType::f32, 1e-5);
    require_near("d_bias", back[2].values(), expected.d_bias, DType::f32, 1e-5);
    if (adds) require_near("d_residual", back[3].values(), expected.d_residual, dtype, 0);
  }
}

TEST_CASE("a NaN in a column makes that column NaN, and no other") {
  Case c(6, 3, DType::f32, true, false, 0, 1);
  c.x.values[4] = std::nan("");
  const auto got = run_everywhere({.op = OpKind::batch_norm, .attrs = c.attrs},
                                  {c.x, c.weight, c.bias, absent()},
                                  {{c.x.shape, DType::f32}, {Shape{3}}, {Shape{3}}});
  const Values y = got[0].values();
  for (size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i % 3 == 1));
}

}  // namespace
}  // namespace batch_norms
}  // namespace dstrain::parity
