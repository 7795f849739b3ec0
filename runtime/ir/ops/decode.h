// Operations of plans that generate text. Their rows are tokens of different texts or of one: a row has a slot, which holds
// the keys and values of a text's earlier tokens, and a position in it. A row's results depend on nothing but the row and
// what its slot holds, bit for bit: not on the other rows, on how many there are, or on how a text is divided into passes.
#pragma once

#include <algorithm>

#include "runtime/ir/ops/attention.h"
#include "runtime/ir/ops/operands.h"
#include "runtime/ir/slots.h"

namespace dstrain::ops {

// Column k of a row meets chain k mod 16, in order, and the 16 chains are added as a tree.
inline constexpr OpRule row_linear{
    .attrs = kAttrs<ActivationAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 3, 1, 1);
          const int64_t r = rows(o.in(0)), k = columns(o.in(0)), n = o.in(1).shape[0];
          const Activation activation = attrs_as<ActivationAttrs>(op.attrs).activation;
          o.expect(activation == Activation::none || activation == Activation::relu,
                   "an activation other than relu is an operation of its own");
          o.expect(o.in(0), r * k, DType::f32);
          o.expect(o.in(1), n * k, o.values(o.in(1)));
          if (o.has_in(2)) o.expect(o.in(2), n, DType::f32);
          o.expect(o.out(0), r * n, DType::f32);
          o.expect(columns(o.out(0)) == n, "y has the wrong number of columns");
          o.no_alias();
        },
    .axes = axes_are<"row channel, feature channel, feature -> row feature">,
};

// The position of row r is -documents[r], as its sample is one token (EmbedAttrs::seq_len 1) whose text has begun so many
// tokens before. First the keys and values of all rows are written, each at its position in its slot; then each row sees
// the keys up to its own position, or those of the window. AttentionAttrs::seq_len: the positions of a slot. A row whose
// slot is below 0 is idle: it writes no keys, and its y is 0.
// Keys of a head: (P / 16, D, 16), those of 16 positions side by side; values: (P, D).
inline constexpr OpRule cached_attention{
    .attrs = kAttrs<AttentionAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.expect(op.reads.size() == 3 || op.reads.size() == 5,
                   "reads qkv or q, k and v, and then documents and slots");
          o.count(3, 5, 3, 3);
          const auto attrs = attrs_as<AttentionAttrs>(op.attrs);
          const int64_t r = rows(o.out(0)), c = columns(o.out(0));
          const int64_t kv_heads = attrs.kv_heads > 0 ? attrs.kv_heads : attrs.heads;
          o.expect(attrs.heads > 0 && c % attrs.heads == 0 && attrs.heads % kv_heads == 0,
                   "channels must divide into heads");
          o.expect(attrs.seq_len > 0 && attrs.dropout == 0, "slots have positions, and no dropout");
          const int64_t size = c / attrs.heads;
          o.expect(o.out(0), r * c, DType::f32);
          if (op.reads.size() == 3) {
            o.expect(o.in(0), r * (c + 2 * kv_heads * size), DType::f32);
          } else {
            o.expect(o.in(0), r * c, DType::f32);
            for (const size_t i : {1, 2}) o.expect(o.in(i), r * kv_heads * size, DType::f32);
          }
          const size_t first = op.reads.size() - 2;
          for (const size_t i : {first, first + 1}) o.expect(o.in(i), r, DType::i32);
          const int64_t slot = kv_heads * positions_in_memory(attrs.seq_len) * size;
          const int64_t slots = o.out(1).shape.elements() / std::max<int64_t>(1, slot);
          for (const size_t i : {1, 2}) o.expect(o.out(i), slots * slot, DType::f32);
          o.no_alias();
        },
    .axes = [](const Program&, const Instruction& op) -> OpAxes {
      if (op.reads.size() == 3) return "row head*3, row, row -> row head, -, -";
      return "row head, row head, row head, row, row -> row head, -, -";
    },
};

}  // namespace dstrain::ops
