// Ops of optimizers whose ranks keep their gradients and send signs (runtime/ir/quantized.h): the signs, of which what
// is lost on the way is kept and added the next time; the momentum that a rank makes of its own gradient; and the
// updates with a frozen second moment, of 1-bit Lamb also the values of whole parameters that they need.
#pragma once

#include "runtime/ir/ops/boundary.h"
#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Returns the elements of one of the parts of `packed`, if all together are `n`.
inline int64_t expect_signs(const Operands& o, const Buffer& packed, int64_t n) {
  const int64_t parts = parts_of(packed);
  o.expect(parts > 0 && n % parts == 0, "the parts are not equal");
  o.expect(packed, parts * sign_bytes(n / parts), DType::u8);
  return n / parts;
}

// Throws unless operands [first, end) are f32 of n elements.
inline void expect_reads(const Operands& o, size_t first, size_t end, int64_t n) {
  for (size_t i = first; i < end; ++i) o.expect(o.in(i), n, DType::f32);
}
inline void expect_writes(const Operands& o, size_t first, size_t end, int64_t n) {
  for (size_t i = first; i < end; ++i) o.expect(o.out(i), n, DType::f32);
}

inline constexpr OpRule quantize_signs{
    .attrs = kAttrs<SignAttrs>,
    .adds_residual = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 2, 2);
          const int64_t n = o.in(0).shape.elements();
          expect_values(o, o.in(0));
          expect_signs(o, o.out(0), n);
          o.expect(attrs_as<SignAttrs>(op.attrs).ranks > 0, "there is no rank");
          expect_writes(o, 1, 2, n);
          o.no_alias();
        },
};

inline constexpr OpRule requantize_signs{
    .adds_residual = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 2, 2);
          const int64_t n = o.out(1).shape.elements();
          o.expect(o.in(0).shape.rank == 2, "the parts are those of K senders");
          expect_signs(o, o.in(0), o.in(0).shape[0] * n);
          o.expect(o.out(0), sign_bytes(n), DType::u8);
          expect_writes(o, 1, 2, n);
          o.no_alias();
        },
};

inline constexpr OpRule dequantize_signs{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const int64_t n = o.out(0).shape.elements();
          expect_signs(o, o.in(0), n);
          expect_writes(o, 0, 1, n);
          o.no_alias();
        },
};

inline constexpr OpRule positive_bits{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const int64_t n = o.in(0).shape.elements();
          o.expect(n % 8 == 0, "the bits are whole bytes");
          expect_reads(o, 0, 1, n);
          o.expect(o.out(0), n / 8, DType::u8);
          o.no_alias();
        },
};

inline constexpr OpRule local_momentum{
    .attrs = kAttrs<LocalMomentumAttrs>,
    .clips_gradient = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 4, 1, 2);
          const int64_t n = o.in(0).shape.elements();
          const auto attrs = attrs_as<LocalMomentumAttrs>(op.attrs);
          expect_sum(o, o.in(0));
          expect_second_moment(o, o.in(1), n);
          if (o.has_in(2)) expect_reads(o, 2, 3, n);
          if (o.has_in(3)) expect_reads(o, 3, 4, 1);
          o.expect(attrs.share > 0 && attrs.weight > 0, "there is no rank");
          o.expect(!attrs.of_scaled || o.has_in(3), "a momentum with a scale has it as operand 3");
          expect_writes(o, 0, o.has_out(1) ? 2 : 1, n);
          o.no_alias(2, 0);
        },
};

inline constexpr OpRule frozen_adam{
    .attrs = kAttrs<FrozenStepAttrs>,
    .moves_weights = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 2);
          const int64_t n = o.in(0).shape.elements();
          expect_reads(o, 0, 2, n);
          expect_writes(o, 0, 1, n);
          if (o.has_out(1)) o.expect(o.out(1), n, p.dtype);
          o.no_alias();
        },
};

inline constexpr OpRule local_weights{
    .attrs = kAttrs<FrozenStepAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          const int64_t n = o.in(0).shape.elements();
          expect_reads(o, 0, 3, n);
          o.expect(o.out(0), n, p.dtype);
          o.no_alias();
        },
};

inline constexpr OpRule end_local_steps{
    .attrs = kAttrs<FrozenStepAttrs>,
    .moves_weights = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 3, 4);
          const int64_t n = o.in(0).shape.elements();
          expect_reads(o, 0, 1, n);
          expect_writes(o, 0, 3, n);
          if (o.has_out(3)) o.expect(o.out(3), n, p.dtype);
          o.no_alias();
        },
};

inline constexpr OpRule lamb_average{
    .attrs = kAttrs<LambAverageAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const int64_t parameters = o.out(0).shape.elements();
          expect_writes(o, 0, 1, parameters);
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
          expect_reads(o, 0, 1, o.in(0).shape.elements());
          expect_reads(o, 1, 2, 1);
          expect_writes(o, 0, 1, 1);
          o.no_alias();
        },
};

inline constexpr OpRule frozen_lamb_direction{
    .attrs = kAttrs<FrozenStepAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(4, 4, 5, 5);
          const int64_t n = o.in(0).shape.elements();
          expect_reads(o, 0, 2, n);
          expect_reads(o, 2, 4, 1);
          expect_writes(o, 0, 4, n);
          expect_writes(o, 4, 5, 1);
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
          expect_reads(o, 0, 1, ratios);
          o.expect(sums > 0 && sums % (2 * parameters) == 0,
                   "the square sums are not pairs of the parameters");
          o.expect(o.in(1), sums, DType::f64);
          expect_writes(o, 0, 1, parameters);
          o.no_alias();
        },
};

}  // namespace dstrain::ops
