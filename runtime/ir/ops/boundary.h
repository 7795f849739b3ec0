// Ops over flat ranges of a unit at the boundary of a step: dtypes, sums of gradients, norms.
#pragma once

#include "runtime/ir/ops/operands.h"
#include "runtime/ir/quantized.h"

namespace dstrain::ops {

// A sum of gradients is kept in f32 or in the run's dtype.
inline void expect_sum(const Operands& o, const Buffer& sum) {
  o.expect(sum.dtype == DType::f32 || sum.dtype == o.run(), "a sum is f32 or of the run's dtype");
}

inline constexpr OpRule cast{
    .kind = OpKind::cast,
    .name = "cast",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0).shape.elements() == o.out(0).shape.elements(), "element counts differ");
          o.no_alias();
        },
};

inline constexpr OpRule accumulate{
    .kind = OpKind::accumulate,
    .name = "accumulate",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0).shape.elements() == o.out(0).shape.elements(), "element counts differ");
          expect_sum(o, o.out(0));
          o.no_alias();
        },
};

inline constexpr OpRule round_wire{
    .kind = OpKind::round_wire,
    .name = "round_wire",
    .attrs = kAttrs<WireAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(op.reads[0] == op.writes[0], "works in place");
          o.expect(o.out(0).dtype == DType::f32, "rounds f32");
        },
};

inline constexpr OpRule sum_squares{
    .kind = OpKind::sum_squares,
    .name = "sum_squares",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          expect_sum(o, o.in(0));
          o.expect(o.out(0), 1, DType::f64);
        },
};

// `packed` holds the values of `plain`, f32 or of the run's dtype.
inline void expect_quantized(const Operands& o, const Buffer& plain, const Buffer& packed) {
  o.count(1, 1, 1, 1);
  o.expect(plain.dtype == DType::f32 || plain.dtype == o.run(),
           "values are f32 or of the run's dtype");
  o.expect(packed, quantized_bytes(plain.shape.elements()), DType::u8);
  o.no_alias();
}

inline constexpr OpRule quantize{
    .kind = OpKind::quantize,
    .name = "quantize",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          expect_quantized(o, o.in(0), o.out(0));
        },
};

inline constexpr OpRule dequantize{
    .kind = OpKind::dequantize,
    .name = "dequantize",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          expect_quantized(o, o.out(0), o.in(0));
        },
};

inline constexpr std::array kBoundaryRules{cast,        accumulate, round_wire,
                                           sum_squares, quantize,   dequantize};

}  // namespace dstrain::ops
