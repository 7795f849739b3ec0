// Weights that are kept in blocks of 8 or 4 bits (runtime/core/blocks/weight_blocks.h) and unpacked in front of the
// products that read them. They are frozen, so unpack_weight has no backward pass: no gradient reaches what it reads.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule unpack_weight{
    .repeatable = true,
    .attrs = kAttrs<UnpackAttrs>,
    .prepares_weight = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          const BlockFormat format = attrs_as<UnpackAttrs>(op.attrs).format;
          o.expect(format != BlockFormat::none, "the blocks have no format");
          const int64_t n = o.out(0).shape.elements();
          o.expect(o.in(0), packed_bytes(format, n), DType::u8);
          o.expect(o.out(0), n, o.run());
          o.no_alias();
        },
};

}  // namespace dstrain::ops
