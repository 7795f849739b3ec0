// Ops of 1-bit Lamb, for each parameter of a unit: the average of its trust ratio, which stays as it is when the second
// moment is frozen, and what the steps after that consist of.
#pragma once

#include "runtime/ir/ops/boundary.h"
#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule lamb_average{
    .attrs = kAttrs<LambAverageAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const int64_t parameters = o.out(0).shape.elements();
          o.expect(o.out(0), parameters, DType::f32);
          o.expect(parameters > 0 && o.in(0).dtype == DType::f64 &&
                       o.in(0).shape.elements() % (2 * parameters) == 0,
                   "the square sums are not f64 pairs of the parameters");
          o.no_alias();
        },
};

inline constexpr OpRule momentum_scale{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          o.expect(o.in(0), o.in(0).shape.elements(), DType::f32);
          o.expect(o.in(1), 1, DType::f32);
          o.expect(o.out(0), 1, DType::f32);
          o.no_alias();
        },
};

inline constexpr OpRule scaled_momentum{
    .attrs = kAttrs<LocalMomentumAttrs>,
    .clips_gradient = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(4, 4, 1, 1);
          const int64_t n = o.in(0).shape.elements();
          expect_sum(o, o.in(0));
          expect_second_moment(o, o.in(1), n);
          o.expect(o.in(2), n, DType::f32);
          o.expect(o.in(3), 1, DType::f32);
          o.expect(attrs_as<LocalMomentumAttrs>(op.attrs).ranks > 0, "there is no rank");
          o.expect(o.out(0), n, DType::f32);
          o.no_alias(2, 0);
        },
};

inline constexpr OpRule frozen_lamb_direction{
    .attrs = kAttrs<FrozenLambAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(4, 4, 5, 5);
          const int64_t n = o.in(0).shape.elements();
          for (size_t i = 0; i < 2; ++i) o.expect(o.in(i), n, DType::f32);
          for (size_t i = 2; i < 4; ++i) o.expect(o.in(i), 1, DType::f32);
          for (size_t i = 0; i < 4; ++i) o.expect(o.out(i), n, DType::f32);
          o.expect(o.out(4), 1, DType::f32);
          o.no_alias();
        },
};

inline constexpr OpRule lamb_factor{
    .attrs = kAttrs<LambFactorAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          const int64_t parameters = o.out(0).shape.elements();
          const int64_t ratios = o.in(0).shape.elements(), sums = o.in(1).shape.elements();
          o.expect(parameters > 0 && ratios > 0 && ratios % parameters == 0,
                   "the ratios are not those of the parameters");
          o.expect(o.in(0), ratios, DType::f32);
          o.expect(sums > 0 && sums % (2 * parameters) == 0,
                   "the square sums are not pairs of the parameters");
          o.expect(o.in(1), sums, DType::f64);
          o.expect(o.out(0), parameters, DType::f32);
          o.no_alias();
        },
};

inline constexpr OpRule frozen_lamb{
    .moves_weights = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 2);
          const int64_t n = o.in(0).shape.elements();
          o.expect(o.in(0), n, DType::f32);
          for (size_t i = 1; i < 3; ++i) o.expect(o.in(i), 1, DType::f32);
          o.expect(o.out(0), n, DType::f32);
          if (o.has_out(1)) o.expect(o.out(1), n, p.dtype);
          o.no_alias();
        },
};

}  // namespace dstrain::ops
