// Ops over flat ranges of a unit at the boundary of a step: dtypes, sums of gradients, norms.
#pragma once

#include "runtime/ir/ops/operands.h"
#include "runtime/ir/quantized.h"

namespace dstrain::ops {

// A sum of gradients is kept in f32 or in the run's dtype.
inline void expect_sum(const Operands& o, const Buffer& sum) {
  o.expect(sum.dtype == DType::f32 || sum.dtype == o.run(), "a sum is f32 or of the run's dtype");
}

// Throws unless `buffer` is a second moment of n elements, or the bits of one.
inline void expect_second_moment(const Operands& o, const Buffer& buffer, int64_t n) {
  if (buffer.dtype == DType::u8)
    o.expect(8 * buffer.shape.elements() == n, "there is a bit for each element");
  else
    o.expect(buffer, n, DType::f32);
}

inline constexpr OpRule cast{
    .repeatable = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0).shape.elements() == o.out(0).shape.elements(), "element counts differ");
          o.no_alias();
        },
    .axes = axes_are<"row channel -> row channel">,
};

inline constexpr OpRule accumulate{
    .gradient_terms = GradientTerms::micro_batches,
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
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          expect_sum(o, o.in(0));
          o.expect(o.out(0), 1, DType::f64);
        },
};

inline void expect_values(const Operands& o, const Buffer& plain) {
  o.expect(plain.dtype == DType::f32 || plain.dtype == o.run(),
           "values are f32 or of the run's dtype");
}

// Returns how many equal parts `packed` has: a flat buffer is one part.
inline int64_t parts_of(const Buffer& packed) {
  return packed.shape.rank == 2 ? packed.shape[0] : 1;
}

// `packed` holds the values of `plain`, f32 or of the run's dtype, in equal parts.
inline void expect_quantized(const Operands& o, const Buffer& plain, const Buffer& packed) {
  o.count(1, 1, 1, 1);
  expect_values(o, plain);
  const int64_t parts = parts_of(packed), n = plain.shape.elements();
  o.expect(parts > 0 && n % parts == 0, "the parts are not equal");
  o.expect(packed, parts * quantized_bytes(n / parts), DType::u8);
  o.no_alias();
}

inline constexpr OpRule quantize{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          expect_quantized(o, o.in(0), o.out(0));
          o.expect(parts_of(o.out(0)) == 1, "it packs one part");
        },
};

inline constexpr OpRule dequantize{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          expect_quantized(o, o.out(0), o.in(0));
        },
};

// `packed` has `parts` parts in int4.
inline void expect_int4(const Operands& o, const Buffer& packed, int64_t parts, int64_t part) {
  o.expect(part > 0 && packed.shape[-1] == int4_bytes(part), "the parts have another size");
  o.expect(packed, parts * int4_bytes(part), DType::u8);
}

// Returns the sums that `packed`, (K, M, bytes of a part), has parts of.
inline int64_t sums_of(const Operands& o, const Buffer& packed) {
  o.expect(packed.shape.rank == 3, "the parts are those of K senders, M of each");
  return packed.shape[-2];
}

// Error feedback (LoCo): with `error` and `next_error`, u8 of the shape (parts, quantized_bytes(part)), each value is
// packed with the error that was kept of it, x' = x + error * the step's loss scale, and
//   next_error = error_beta * error + (1 - error_beta) * (x' - what comes back of it) / the loss scale.
// In a block that comes back as NaN the error stays. Errors are packed as int8, in the order of x or of the sums; a
// block of errors with one of 2^127 or more is 0. `error` counts as 0 in a step whose applied_steps is a multiple of
// error_steps. An instruction that accumulates goes on from next_error instead.
inline void expect_feedback(const Operands& o, int64_t parts, int64_t part) {
  o.expect(o.has_in(1) == o.has_out(1), "an error is read and written");
  if (!o.has_in(1)) return;
  const auto attrs = attrs_as<Int4Attrs>(o.attrs());
  o.expect(attrs.error_beta >= 0 && attrs.error_beta <= 1 && attrs.error_steps > 0,
           "what stays of the error is not given");
  o.expect(o.in(1), parts * quantized_bytes(part), DType::u8);
  o.expect(o.out(1), parts * quantized_bytes(part), DType::u8);
}

inline constexpr OpRule quantize_int4{
    .attrs = kAttrs<Int4Attrs>,
    .sums = {.first = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 2, 1, 2);
          expect_values(o, o.in(0));
          const auto attrs = attrs_as<Int4Attrs>(op.attrs);
          const int64_t n = o.in(0).shape.elements();
          o.expect(attrs.part > 0 && n % attrs.part == 0, "the parts are not equal");
          const int64_t parts = n / attrs.part;
          o.expect(attrs.group > 0 && parts % attrs.group == 0,
                   "the group does not divide the parts");
          expect_int4(o, o.out(0), parts, attrs.part);
          expect_feedback(o, parts, attrs.part);
          o.no_alias();
        },
};

inline constexpr OpRule requantize_int4{
    .attrs = kAttrs<Int4Attrs>,
    .sums = {.first = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 2, 1, 2);
          const int64_t part = attrs_as<Int4Attrs>(op.attrs).part, sums = sums_of(o, o.in(0));
          expect_int4(o, o.in(0), o.in(0).shape[0] * sums, part);
          expect_int4(o, o.out(0), sums, part);
          expect_feedback(o, sums, part);
          o.no_alias();
        },
};

inline constexpr OpRule sum_int4{
    .attrs = kAttrs<Int4Attrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const auto attrs = attrs_as<Int4Attrs>(op.attrs);
          const bool one = o.in(0).shape.rank == 2;
          const int64_t sums = one ? o.in(0).shape[0] : sums_of(o, o.in(0));
          const int64_t n = o.out(0).shape.elements();
          expect_int4(o, o.in(0), one ? sums : o.in(0).shape[0] * sums, attrs.part);
          expect_sum(o, o.out(0));
          o.expect(n % attrs.part == 0 && attrs.first >= 0 && attrs.first + n / attrs.part <= sums,
                   "the sums that are wanted are not there");
          o.no_alias();
        },
};

inline constexpr OpRule error_squares{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          expect_values(o, o.in(0));
          expect_values(o, o.in(1));
          o.expect(o.in(0).shape.elements() == o.in(1).shape.elements(), "element counts differ");
          o.expect(o.out(0), 2, DType::f64);
        },
};

inline constexpr OpRule update_buffer{
    .attrs = kAttrs<UpdateBufferAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0), o.out(0).shape.elements(), DType::f32);
          o.expect(o.out(0).dtype == DType::f32, "registered buffers are f32");
          o.no_alias();
        },
};

}  // namespace dstrain::ops
