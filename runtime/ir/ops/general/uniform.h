// uniform: numbers that are drawn uniformly from [0, 1), by a counter (runtime/core/philox.h): each follows from the seed, the site,
// the number of its sample among all samples and its place in the sample, and so from no layout. Drawn once more, as recompute
// does, they are the same. Other distributions are maps of them.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule uniform{
    .repeatable = true,
    .of_model = true,
    .walks_space = true,
    .attrs = kAttrs<UniformAttrs>,
    .sums = {.count = 0},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(0, 0, 1, 1);
          const auto attrs = attrs_as<UniformAttrs>(op.attrs);
          o.expect(attrs.samples > 0 && attrs.inner > 0, "at least one element of one sample");
          o.expect(o.out(0).dtype == DType::f32, "what is drawn is f32");
          const int64_t elements = o.out(0).shape.elements();
          o.expect(elements > 0 && elements % (attrs.samples * attrs.inner) == 0,
                   "as many elements of each sample");
        },
};

}  // namespace dstrain::ops
