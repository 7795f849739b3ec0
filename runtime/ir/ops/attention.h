// Self-attention as one op, so that no T x T matrix becomes a buffer. FLOPs count the pairs of queries and keys that see
// each other, as Dao et al. do: T*T/2 of each head, or with a window of W < T keys T*W - W*W/2; T*T where it is not
// causal. The forward pass has 2 products of 2*D FLOPs for each pair, the backward pass 5.
#pragma once

#include <algorithm>

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Returns the FLOPs of `products` products. y: the result of attention, or its gradient.
inline double attention_flops(const Buffer& y, const AttentionAttrs& attrs, double products) {
  const auto t = static_cast<double>(attrs.seq_len);
  if (!attrs.causal) return products * static_cast<double>(y.shape.elements()) * 2 * t;
  const double window = attrs.window > 0 ? std::min(static_cast<double>(attrs.window), t) : t;
  return products * static_cast<double>(y.shape.elements()) * (2 * window - window * window / t);
}

// Where attention's queries, keys and values are among the operands: tensors of their own, or one of all three. The
// gradient has d_y before and y and lse behind them. Documents are the last operand, if they are there.
struct AttentionInputs {
  size_t first, count;  // 1: qkv, 3: q, k, v
  explicit AttentionInputs(const Instruction& op)
      : first(op.op == OpKind::attention_grad ? 1 : 0),
        count(op.reads.size() >= first + 3 + 2 * first ? 3 : 1) {}
  // Returns the index of the operand that follows them.
  size_t end() const { return first + count; }
  // Returns the index of the documents, if there are any.
  size_t documents() const { return end() + 2 * first; }
  // Returns the elements of operand `i` of them, where y has `rows` rows of `columns`.
  int64_t elements(size_t i, int64_t rows, int64_t columns, const AttentionAttrs& attrs) const {
    const int64_t kv = columns / attrs.heads * (attrs.kv_heads > 0 ? attrs.kv_heads : attrs.heads);
    return rows * (count == 1 ? columns + 2 * kv : i == 0 ? columns : kv);
  }
};

// Returns the axes of attention or of its gradient. Scores need all rows of a sample.
inline OpAxes attention_axes(OpAxes of_three, OpAxes of_one, const Instruction& op) {
  const AttentionInputs inputs(op);
  if (inputs.count == 1) return of_one;
  const auto attrs = attrs_as<AttentionAttrs>(op.attrs);
  const int64_t keys = attrs.kv_heads > 0 ? attrs.kv_heads : attrs.heads;
  return of_three.with_indices(inputs.first + 1, keys).with_indices(inputs.first + 2, keys);
}

inline void check_attention(const Operands& o, const AttentionAttrs& attrs,
                            const AttentionInputs& inputs, const Buffer& y, const Buffer& lse) {
  const int64_t r = rows(y), c = columns(y);
  const DType t = o.values(y);
  o.expect(attrs.heads > 0 && c % attrs.heads == 0, "channels must divide into heads");
  o.expect(attrs.kv_heads >= 0 && (attrs.kv_heads == 0 || attrs.heads % attrs.kv_heads == 0),
           "heads of queries must divide into heads of keys");
  o.expect(attrs.seq_len > 0 && r % attrs.seq_len == 0, "rows must divide into samples");
  o.expect(attrs.window >= 0, "a window has 0 keys (no window) or more");
  o.expect(
      attrs.causal || attrs.window == 0,
      "a window is one of causal attention: expected window 0 where every query sees all keys");
  o.expect(attrs.scale >= 0 && attrs.scale < 1e30, "scores are scaled by 0 (default) or more");
  o.expect(attrs.softcap >= 0 && attrs.softcap < 1e30, "scores have a cap of 0 (none) or more");
  for (size_t i = 0; i < inputs.count; ++i)
    o.expect(o.in(inputs.first + i), inputs.elements(i, r, c, attrs), t);
  o.expect(lse, r * attrs.heads, DType::f32);
  o.expect(attrs.causal || !o.has_in(inputs.documents()),
           "documents are of causal attention: expected none where every query sees all keys");
  o.expect_documents(inputs.documents(), r);
}

// Adds the buffers of a head's keys and values in all slots, which live for the run.
inline void attend_in_slots(Program& p, Instruction& op, const Slots& slots) {
  auto attrs = attrs_as<AttentionAttrs>(op.attrs);
  check(attrs.causal, "{}: attention that is not causal has no keys of earlier calls",
        p.group_name(op));
  check(AttentionInputs(op).documents() + 1 == op.reads.size(),
        "{}: attention does not read where texts begin", p.group_name(op));
  const int64_t heads = attrs.kv_heads > 0 ? attrs.kv_heads : attrs.heads;
  const int64_t size = columns(p.at(op.writes[0])) / attrs.heads;
  const auto add = [&](std::string_view what) {
    return p.add_buffer({.name = fmt::format("{}:{}:{}", what, p.group_name(op), op.writes[0]),
                         .shape = {slots.count, heads, positions_in_memory(slots.positions) * size},
                         .lifetime = Lifetime::persistent});
  };
  attrs.seq_len = slots.positions;
  attrs.dropout = 0;
  op.attrs = attrs;
  op.op = OpKind::cached_attention;
  op.reads.push_back(slots.of_row);
  op.writes = {op.writes[0], add("keys"), add("values")};
}

inline constexpr OpRule attention{
    .repeatable = true,
    .of_model = true,
    .attrs = kAttrs<AttentionAttrs>,
    // All pairs of queries and keys, also those that do not see each other.
    .profiled =
        [](const Program& p, const Instruction& op, const WeightSizes&) {
          const auto keys = static_cast<double>(attrs_as<AttentionAttrs>(op.attrs).seq_len);
          const double macs = 2 * static_cast<double>(p.at(op.writes[0]).shape.elements()) * keys;
          return CountedWork{.macs = macs, .flops = 2 * macs};
        },
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          const AttentionInputs inputs(op);
          o.count(inputs.end(), inputs.documents() + 1, 2, 2);
          check_attention(o, attrs_as<AttentionAttrs>(op.attrs), inputs, o.out(0), o.out(1));
          o.no_alias();
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return attention_flops(p.at(op.writes[0]), attrs_as<AttentionAttrs>(op.attrs), 2);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          // The gradients of queries, keys and values come together, though all but one may be of no use.
          if (std::ranges::none_of(op.reads, [&](BufferId x) { return g.needs(x); })) return;
          const AttentionInputs inputs(op);
          const auto documents = op.reads.begin() + static_cast<std::ptrdiff_t>(inputs.documents());
          const std::vector<BufferId> values(op.reads.begin(), documents);
          const BufferId y = op.writes[0], lse = op.writes[1];
          std::vector<BufferId> reads{g.of(y)}, gradients;
          reads.insert(reads.end(), values.begin(), values.end());
          reads.insert(reads.end(), {y, lse});
          reads.insert(reads.end(), documents, op.reads.end());
          for (const BufferId x : values) gradients.push_back(g.like(x));
          g.emit(OpKind::attention_grad, op.attrs, reads, gradients);
          for (size_t i = 0; i < values.size(); ++i)
            if (g.needs(values[i])) g.contribute(values[i], gradients[i]);
        },
    .axes = [](const Program&, const Instruction& op) -> OpAxes {
      return attention_axes("row! head, row head, row head, row -> row head, sample head position",
                            "row! head*3, row -> row head, sample head position", op);
    },
    .in_slots = attend_in_slots,
};

inline constexpr OpRule attention_grad{
    .attrs = kAttrs<AttentionAttrs>,
    .needed_part = 4.0 / 5.0,  // one of its products computes the scores again
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          const AttentionInputs inputs(op);
          o.count(inputs.documents(), inputs.documents() + 1, inputs.count, inputs.count);
          const Buffer& y = o.in(inputs.end());
          check_attention(o, attrs_as<AttentionAttrs>(op.attrs), inputs, y, o.in(inputs.end() + 1));
          const DType t = o.values(y);
          o.expect(o.in(0), y.shape.elements(), t);
          for (size_t i = 0; i < inputs.count; ++i)
            o.expect(o.out(i), o.in(inputs.first + i).shape.elements(), t);
          o.no_alias();
        },
    .flops =
        [](const Program& p, const Instruction& op) {
          return attention_flops(p.at(op.reads[0]), attrs_as<AttentionAttrs>(op.attrs), 5);
        },
    .axes = [](const Program&, const Instruction& op) -> OpAxes {
      return attention_axes(
          "row! head, row head, row head, row head, row head, sample head position, row "
          "-> row head, row head, row head",
          "row! head, row head*3, row head, sample head position, row -> row head*3", op);
    },
};

}  // namespace dstrain::ops
