// The optimizers. Both update a flat range of a unit in place: master weights, their state, and the
// 16-bit parameters of a 16-bit run.
#pragma once

#include "runtime/ir/ops/boundary.h"
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

inline constexpr OpRule adam{
    .kind = OpKind::adam,
    .name = "adam",
    .attrs = kAttrs<AdamAttrs>,
    .check = [](const Program& p, const Instruction& op) { check_update(p, op, 3); },
};

inline constexpr OpRule sgd{
    .kind = OpKind::sgd,
    .name = "sgd",
    .attrs = kAttrs<SgdAttrs>,
    .check = [](const Program& p, const Instruction& op) { check_update(p, op, 2); },
};

inline constexpr std::array kOptimizerRules{adam, sgd};

}  // namespace dstrain::ops
