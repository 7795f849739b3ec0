// spread_rows, combine_rows and combine_weight_grad against their definitions in double precision.
#include <algorithm>
#include <numeric>

#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

struct Sizes {
  int64_t rows, slots, columns;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {3, 2, 17}, {40, 1, 33}, {7, 8, 64}, {65, 3, 130}};

// Returns a permutation of the rows of experts.
std::vector<double> places_of(const Sizes& s) {
  std::vector<double> places(static_cast<size_t>(s.rows * s.slots));
  std::iota(places.begin(), places.end(), 0.0);
  const std::vector<double> by = uniform_values(s.rows * s.slots, 11);
  std::ranges::sort(places, [&](double a, double b) {
    return by[static_cast<size_t>(a)] < by[static_cast<size_t>(b)];
  });
  return places;
}

// The operands of one size: values of rows and of rows of experts, and weights.
struct Operands {
  Operand rows, of_experts, places, weights;

  Operands(const Sizes& s, DType dtype)
      : rows{{s.rows, s.columns}, dtype, rounded(normal_values(s.rows * s.columns, 1), dtype)},
        of_experts{{s.rows * s.slots, s.columns},
                   dtype,
                   rounded(normal_values(s.rows * s.slots * s.columns, 2), dtype)},
        places{{s.rows, s.slots}, DType::i32, places_of(s)},
        weights{{s.rows, s.slots},
                DType::f32,
                rounded(uniform_values(s.rows * s.slots, 3, 0, 1), DType::f32)} {}
};

// Calls f(slot, element of a row, element of a row of experts) for all elements.
template <class F>
void for_elements(const Sizes& s, const Operands& o, const F& f) {
  for (int64_t slot = 0; slot < s.rows * s.slots; ++slot)
    for (int64_t c = 0; c < s.columns; ++c)
      f(static_cast<size_t>(slot), static_cast<size_t>(slot / s.slots * s.columns + c),
        static_cast<size_t>(
            static_cast<int64_t>(o.places.values[static_cast<size_t>(slot)]) * s.columns + c));
}

}  // namespace

TEST_CASE("rows are spread to their places, times weights") {
  for (const Sizes& s : kSizes)
    for (const DType dtype : kRunTypes)
      for (const bool weighted : {false, true}) {
        CAPTURE(s.rows, s.slots, s.columns, name_of(dtype), weighted);
        const Operands o(s, dtype);
        std::vector<double> expected(o.of_experts.values.size());
        for_elements(s, o, [&](size_t slot, size_t row, size_t expert) {
          expected[expert] = o.rows.values[row] * (weighted ? o.weights.values[slot] : 1);
        });
        const auto got = run_everywhere({.op = OpKind::spread_rows},
                                        {o.rows, o.places, weighted ? o.weights : absent()},
                                        {{o.of_experts.shape, dtype}});
        require_close("y", got[0].values(), expected, rounding_of(dtype));
      }
}

TEST_CASE("rows of experts are added slot by slot, times weights, and rounded once") {
  for (const Sizes& s : kSizes)
    for (const DType dtype : kRunTypes)
      for (const bool weighted : {false, true}) {
        CAPTURE(s.rows, s.slots, s.columns, name_of(dtype), weighted);
        const Operands o(s, dtype);
        std::vector<double> expected(o.rows.values.size());
        for_elements(s, o, [&](size_t slot, size_t row, size_t expert) {
          expected[row] += o.of_experts.values[expert] * (weighted ? o.weights.values[slot] : 1);
        });
        const auto got = run_everywhere({.op = OpKind::combine_rows},
                                        {o.of_experts, o.places, weighted ? o.weights : absent()},
                                        {{o.rows.shape, dtype}});
        require_close("y", got[0].values(), expected, tolerance_of(dtype));
      }
}

TEST_CASE("the gradient of a weight is the product of a row's gradient and what it weighs") {
  for (const Sizes& s : kSizes)
    for (const DType dtype : kRunTypes) {
      CAPTURE(s.rows, s.slots, s.columns, name_of(dtype));
      const Operands o(s, dtype);
      std::vector<double> expected(o.weights.values.size());
      for_elements(s, o, [&](size_t slot, size_t row, size_t expert) {
        expected[slot] += o.rows.values[row] * o.of_experts.values[expert];
      });
      const auto got =
          run_everywhere({.op = OpKind::combine_weight_grad}, {o.rows, o.of_experts, o.places},
                         {{o.weights.shape, DType::f32}});
      require_close("d_weights", got[0].values(), expected,
                    tolerance_of(DType::f32, static_cast<double>(s.columns)));
    }
}

}  // namespace dstrain::parity
