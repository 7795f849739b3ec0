// Ops of optimizers whose momentum travels as signs (runtime/ir/quantized.h): what is lost on the way is kept and added
// the next time.
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
          o.expect(o.out(1), n, DType::f32);
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
          o.expect(o.out(1), n, DType::f32);
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
          o.expect(o.out(0), n, DType::f32);
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
          o.expect(o.in(0), n, DType::f32);
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
          o.count(2, 2, 1, 1);
          expect_sum(o, o.in(0));
          const int64_t n = o.in(0).shape.elements();
          expect_second_moment(o, o.in(1), n);
          o.expect(attrs_as<LocalMomentumAttrs>(op.attrs).ranks > 0, "there is no rank");
          o.expect(o.out(0), n, DType::f32);
          o.no_alias();
        },
};

inline constexpr OpRule frozen_adam{
    .attrs = kAttrs<FrozenAdamAttrs>,
    .moves_weights = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 2);
          const int64_t n = o.in(0).shape.elements();
          for (size_t i = 0; i < 2; ++i) o.expect(o.in(i), n, DType::f32);
          o.expect(o.out(0), n, DType::f32);
          if (o.has_out(1)) o.expect(o.out(1), n, p.dtype);
          o.no_alias();
        },
};

inline constexpr OpRule local_step{
    .attrs = kAttrs<LocalMomentumAttrs>,
    .clips_gradient = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 2, 2);
          const int64_t n = o.in(0).shape.elements();
          expect_sum(o, o.in(0));
          o.expect(o.in(1), n, DType::f32);
          o.expect(attrs_as<LocalMomentumAttrs>(op.attrs).ranks > 0, "there is no rank");
          for (size_t i = 0; i < 2; ++i) o.expect(o.out(i), n, DType::f32);
          o.no_alias();
        },
};

inline constexpr OpRule local_weights{
    .attrs = kAttrs<FrozenAdamAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          const int64_t n = o.in(0).shape.elements();
          for (size_t i = 0; i < 3; ++i) o.expect(o.in(i), n, DType::f32);
          o.expect(o.out(0), n, p.dtype);
          o.no_alias();
        },
};

inline constexpr OpRule end_local_steps{
    .attrs = kAttrs<FrozenAdamAttrs>,
    .moves_weights = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 3, 4);
          const int64_t n = o.in(0).shape.elements();
          o.expect(o.in(0), n, DType::f32);
          for (size_t i = 0; i < 3; ++i) o.expect(o.out(i), n, DType::f32);
          if (o.has_out(3)) o.expect(o.out(3), n, p.dtype);
          o.no_alias();
        },
};

}  // namespace dstrain::ops
