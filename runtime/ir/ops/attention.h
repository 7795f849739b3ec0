// Causal self-attention over qkv (R,3C) as one op, so that no T x T matrix becomes a buffer. FLOPs count
// the causal half, as Dao et al. do: 2 products of T*T*D/2 per head in the forward pass, 5 in the backward.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline double attention_flops(const Buffer& y, const AttentionAttrs& attrs, double products) {
  return products * static_cast<double>(y.shape.elements()) * static_cast<double>(attrs.seq_len);
}

inline void check_shapes(const Operands& o, const AttentionAttrs& attrs, const Buffer& qkv,
                         const Buffer& y, const Buffer& lse) {
  const int64_t r = rows(y), c = columns(y);
  o.expect(attrs.heads > 0 && c % attrs.heads == 0, "channels must divide into heads");
  o.expect(attrs.seq_len > 0 && r % attrs.seq_len == 0, "rows must divide into samples");
  o.expect(qkv, 3 * r * c, o.values(y));
  o.expect(lse, r * attrs.heads, DType::f32);
}

inline constexpr OpRule attention{
    .kind = OpKind::attention,
    .name = "attention",
    .repeatable = true,
    .attrs = kAttrs<AttentionAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 2, 2);
          check_shapes(o, attrs_as<AttentionAttrs>(op.attrs), o.in(0), o.out(0), o.out(1));
          o.no_alias();
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return attention_flops(p.at(op.writes[0]), attrs_as<AttentionAttrs>(op.attrs), 2);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId qkv = op.reads[0], y = op.writes[0], lse = op.writes[1];
          if (!g.needs(qkv)) return;
          const BufferId d_qkv = g.like(qkv);
          g.emit(OpKind::attention_grad, op.attrs, {g.of(y), qkv, y, lse}, {d_qkv});
          g.contribute(qkv, d_qkv);
        },
};

inline constexpr OpRule attention_grad{
    .kind = OpKind::attention_grad,
    .name = "attention_grad",
    .attrs = kAttrs<AttentionAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(4, 4, 1, 1);
          check_shapes(o, attrs_as<AttentionAttrs>(op.attrs), o.in(1), o.in(2), o.in(3));
          const DType t = o.values(o.in(1));
          o.expect(o.in(0), o.in(2).shape.elements(), t);
          o.expect(o.out(0), o.in(1).shape.elements(), t);
          o.no_alias();
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return attention_flops(p.at(op.reads[0]), attrs_as<AttentionAttrs>(op.attrs), 5);
        },
};

inline constexpr std::array kAttentionRules{attention, attention_grad};

}  // namespace dstrain::ops
