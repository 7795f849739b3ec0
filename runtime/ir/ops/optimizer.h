// The optimizers. They update a flat range of a unit in place: master weights, their state, and the
// 16-bit parameters of a 16-bit run.
#pragma once

#include "runtime/core/blocks/dynamic_code.h"
#include "runtime/ir/ops/boundary.h"
#include "runtime/ir/ops/newton_schulz.h"
#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline void check_update(const Program& p, const Instruction& op, size_t slots) {
  const Operands o(p, op);
  o.count(1, 1, 1, slots + 1);
  const int64_t n = o.in(0).shape.elements();
  expect_sum(o, o.in(0));
  for (size_t i = 0; i < slots; ++i)
    if (o.has_out(i)) o.expect(o.out(i), n, DType::f32);
  if (o.has_out(slots)) o.expect(o.out(slots), n, p.dtype);
  o.no_alias();
}

// Parameters of the run's dtype may be their own masters, with moments of f32 or of that dtype.
inline void check_own_masters(const Program& p, const Instruction& op) {
  const Operands o(p, op);
  o.count(1, 1, 3, 4);
  const int64_t n = o.in(0).shape.elements();
  expect_sum(o, o.in(0));
  o.expect(o.out(0), n, p.dtype);
  for (size_t i = 1; i < 3; ++i)
    o.expect(o.out(i), n, o.out(1).dtype == p.dtype ? p.dtype : DType::f32);
  o.expect(!o.has_out(3), "16-bit masters have no copy");
  o.no_alias();
}

inline constexpr OpRule adam{
    .attrs = kAttrs<AdamAttrs>,
    .moves_weights = true,
    .clips_gradient = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const bool own_masters = op.writes.size() > 0 && op.writes[0] != kNone &&
                                   p.at(op.writes[0]).dtype != DType::f32;
          if (own_masters)
            check_own_masters(p, op);
          else
            check_update(p, op, 3);
        },
};

inline constexpr OpRule adagrad{
    .attrs = kAttrs<AdagradAttrs>,
    .moves_weights = true,
    .clips_gradient = true,
    .check = [](const Program& p, const Instruction& op) { check_update(p, op, 2); },
};

inline constexpr OpRule lion{
    .attrs = kAttrs<LionAttrs>,
    .moves_weights = true,
    .clips_gradient = true,
    .check = [](const Program& p, const Instruction& op) { check_update(p, op, 2); },
};

// Checks an update whose state consists of `slots` slots of codes, each with the absmax of its blocks.
inline void check_8bit_update(const Program& p, const Instruction& op, size_t slots) {
  const Operands o(p, op);
  o.count(1, 1, 1 + 2 * slots, 2 + 2 * slots);
  const int64_t n = o.in(0).shape.elements();
  expect_sum(o, o.in(0));
  o.expect(o.out(0), n, DType::f32);
  for (size_t i = 1; i < 1 + 2 * slots; i += 2) {
    o.expect(o.out(i), n, DType::u8);
    o.expect(o.out(i + 1), (n + kStateBlock - 1) / kStateBlock, DType::f32);
  }
  if (o.has_out(1 + 2 * slots)) o.expect(o.out(1 + 2 * slots), n, p.dtype);
  o.no_alias();
}

inline constexpr OpRule adam_8bit{
    .attrs = kAttrs<AdamAttrs>,
    .moves_weights = true,
    .clips_gradient = true,
    .check = [](const Program& p, const Instruction& op) { check_8bit_update(p, op, 2); },
};

inline constexpr OpRule lion_8bit{
    .attrs = kAttrs<LionAttrs>,
    .moves_weights = true,
    .clips_gradient = true,
    .check = [](const Program& p, const Instruction& op) { check_8bit_update(p, op, 1); },
};

inline constexpr OpRule lamb_direction{
    .attrs = kAttrs<LambDirectionAttrs>,
    .clips_gradient = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 3, 3);
          const int64_t n = o.in(0).shape.elements();
          expect_sum(o, o.in(0));
          o.expect(o.in(1), n, DType::f32);
          for (size_t i = 0; i < 3; ++i) o.expect(o.out(i), n, DType::f32);
          o.no_alias();
        },
};

inline constexpr OpRule lamb{
    .attrs = kAttrs<LambAttrs>,
    .moves_weights = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 3, 1, 2);
          const int64_t n = o.in(0).shape.elements();
          const auto attrs = attrs_as<LambAttrs>(op.attrs);
          o.expect(o.in(0), n, DType::f32);
          const bool frozen = o.has_in(2);
          for (size_t i = 1; frozen && i < 3; ++i) o.expect(o.in(i), 1, DType::f32);
          o.expect(frozen || (attrs.parameter >= 0 && attrs.parameter < attrs.parameters &&
                              o.in(1).dtype == DType::f64 &&
                              o.in(1).shape.elements() % (2 * attrs.parameters) == 0),
                   "the square sums are not f64 pairs of the unit's parameters");
          o.expect(o.out(0), n, DType::f32);
          if (o.has_out(1)) o.expect(o.out(1), n, p.dtype);
          o.no_alias();
        },
};

inline constexpr OpRule sgd{
    .attrs = kAttrs<SgdAttrs>,
    .moves_weights = true,
    .clips_gradient = true,
    .check = [](const Program& p, const Instruction& op) { check_update(p, op, 2); },
};

inline constexpr OpRule muon_momentum{
    .attrs = kAttrs<MuonMomentumAttrs>,
    .clips_gradient = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 2, 2);
          const int64_t n = o.in(0).shape.elements();
          expect_sum(o, o.in(0));
          for (size_t i = 0; i < 2; ++i) o.expect(o.out(i), n, DType::f32);
          o.no_alias();
        },
};

inline constexpr OpRule orthogonalize{
    .attrs = kAttrs<OrthogonalizeAttrs>,
    .needed_part = 0,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0).shape.rank == 2, "x is a matrix");
          o.expect(o.in(0), rows(o.in(0)) * columns(o.in(0)), DType::f32);
          o.expect(o.out(0).shape == o.in(0).shape && o.out(0).dtype == DType::f32,
                   "y has x's shape and is f32");
          o.no_alias(0, 0);
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          const Buffer& x = p.at(op.reads[0]);
          return newton_schulz_flops(attrs_as<OrthogonalizeAttrs>(op.attrs), rows(x), columns(x));
        },
};

inline constexpr OpRule muon{
    .attrs = kAttrs<MuonAttrs>,
    .moves_weights = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 2);
          const int64_t n = o.in(0).shape.elements();
          o.expect(o.in(0), n, DType::f32);
          o.expect(o.out(0), n, DType::f32);
          if (o.has_out(1)) o.expect(o.out(1), n, p.dtype);
          o.no_alias();
        },
};

}  // namespace dstrain::ops
