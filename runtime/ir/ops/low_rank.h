// Low-rank factors of gradients (PowerSGD), and what codecs keep from step to step. A factor of R columns is stored
// as R rows, so that a column is contiguous. The order of every sum is given, so all devices give the same bits:
// project_rows adds in f32, element k to chain k mod 32 in order, and the 32 chains as a tree; project_columns adds
// rows in order in blocks of 256, and the blocks in order; gram_schmidt adds in f64 as project_rows does, with 256
// chains.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline void expect_factors(const Operands& o, const Buffer& matrix, const Buffer& columns_of,
                           const Buffer& rows_of) {
  o.expect(matrix.shape.rank == 2 && columns_of.shape.rank == 2 && rows_of.shape.rank == 2,
           "matrix and factors have two dimensions");
  const int64_t rank = columns_of.shape[0];
  o.expect(matrix, columns_of.shape[1] * rows_of.shape[1], DType::f32);
  o.expect(columns_of, rank * matrix.shape[0], DType::f32);
  o.expect(rows_of, rank * matrix.shape[1], DType::f32);
}

inline constexpr OpRule gram_schmidt{
    .attrs = kAttrs<GramSchmidtAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(op.reads[0] == op.writes[0], "works in place");
          o.expect(o.out(0).dtype == DType::f32 && o.out(0).shape.rank == 2,
                   "the columns are rows of f32");
        },
};

inline constexpr OpRule random_factor{
    .attrs = kAttrs<RandomFactorAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(0, 0, 1, 1);
          o.expect(o.out(0).dtype == DType::f32, "makes f32");
        },
};

inline constexpr OpRule project_rows{
    .needed_part = 0,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          expect_factors(o, o.in(0), o.out(0), o.in(1));
          o.no_alias();
        },
    .flops = [](const Program& p, const Instruction& op) -> double {
      const Operands o(p, op);
      return 2.0 * static_cast<double>(o.in(0).shape.elements() * o.out(0).shape[0]);
    },
};

inline constexpr OpRule project_columns{
    .needed_part = 0,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          expect_factors(o, o.in(0), o.in(1), o.out(0));
          o.no_alias();
        },
    .flops = [](const Program& p, const Instruction& op) -> double {
      const Operands o(p, op);
      return 2.0 * static_cast<double>(o.in(0).shape.elements() * o.out(0).shape[0]);
    },
};

inline constexpr OpRule expand_factors{
    .attrs = kAttrs<ExpandAttrs>,
    .needed_part = 0,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 2);
          o.expect(op.reads[2] == op.writes[0], "the matrix is updated in place");
          expect_factors(o, o.out(0), o.in(0), o.in(1));
          if (o.has_out(1)) o.expect(o.out(1), o.out(0).shape.elements(), DType::f32);
          o.expect(attrs_as<ExpandAttrs>(op.attrs).ranks > 0, "there are ranks");
        },
    .flops = [](const Program& p, const Instruction& op) -> double {
      const Operands o(p, op);
      return 2.0 * static_cast<double>(o.out(0).shape.elements() * o.in(0).shape[0]);
    },
};

inline constexpr OpRule add_error{
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0), o.out(0).shape.elements(), DType::f32);
          o.expect(o.out(0).dtype == DType::f32, "adds f32");
          o.no_alias();
        },
};

inline constexpr OpRule commit_state{
    .attrs = kAttrs<CommitAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const DType dtype = o.out(0).dtype;
          o.expect(o.in(0), o.out(0).shape.elements(), dtype);
          const auto attrs = attrs_as<CommitAttrs>(op.attrs);
          o.expect(dtype == DType::f32 || (dtype == DType::u8 && attrs == CommitAttrs{}),
                   "commits f32, or bytes as they are");
          o.expect(attrs.divisor > 0, "divides by a positive number");
          o.no_alias();
        },
};

}  // namespace dstrain::ops
