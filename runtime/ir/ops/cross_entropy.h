// Softmax cross-entropy over the classes, fused with its gradient: d_logits overwrites the logits. It is
// divided by the number of targets of the global batch and multiplied by the loss scale here, and nowhere
// else. With the smoothing e, the z-loss weight z and the logarithm s of the sum of exponentials, a row of V classes has
//   loss = s - (1 - e) logits[target] - e / V * sum(logits) + z s^2
// A factor, which the model computes, multiplies the loss and the gradient: where the model's loss is a mean of its own.
#pragma once

#include "runtime/ir/ops/class_sums.h"
#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Checks operand `i`, the losses of rows that are added before those of these rows.
inline void expect_losses_before(const Operands& o, size_t i, bool by_row) {
  if (!o.has_in(i)) return;
  o.expect(o.in(i), o.in(i).shape.elements(), DType::f64);
  o.expect(!by_row, "losses of rows are not added to others");
}

// Returns the axes of a loss, of which each row's classes are compared.
inline OpAxes loss_axes(const Program&, const Instruction& op) {
  if (attrs_as<CrossEntropyAttrs>(op.attrs).by_row) return "row class, row -> row, row class";
  return "row class, row -> -, row class";
}

inline constexpr OpRule cross_entropy{
    .of_model = true,
    .attrs = kAttrs<CrossEntropyAttrs>,
    .reads_targets = true,
    .makes_loss = true,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 4, 1, 2);
          const DType t = o.values(o.in(0));
          const int64_t r = rows(o.in(0)), v = columns(o.in(0));
          const int64_t classes = attrs_as<CrossEntropyAttrs>(op.attrs).classes;
          o.expect(0 <= classes && classes <= v, "more classes than logits");
          o.expect(o.in(0), r * v, t);
          o.expect(o.in(1), r, DType::i32);
          const bool by_row = attrs_as<CrossEntropyAttrs>(op.attrs).by_row;
          o.expect(o.out(0), by_row ? r : 1, DType::f64);
          expect_losses_before(o, 2, by_row);
          if (o.has_in(3)) {
            o.expect(o.in(3), 1, DType::f32);
            o.expect(!by_row && !o.has_in(2), "a factor is of the sum of all rows");
          }
          if (o.has_out(1)) o.expect(o.out(1), r * v, t);
          o.no_alias(0, 1);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          check(op.writes.size() > 1 && op.writes[1] != kNone,
                "cross_entropy was emitted without its gradient");
          g.contribute(op.reads[0], op.writes[1]);
        },
    .axes = loss_axes,
    .in_parts = InParts{.own = OpKind::class_sums, .all = OpKind::cross_entropy_part},
};

// The same where each of several ranks has the logits of some classes: each finds for its own what the loss and the
// gradient need of all, some numbers a row (class_sums.h), which the ranks gather. The largest logit and the sum stay
// apart until the end: the logarithm of a sum near 1 would be lost in a large logit.
inline void expect_classes(const Operands& o, const CrossEntropyAttrs& attrs) {
  const DType t = o.values(o.in(0));
  const int64_t r = rows(o.in(0)), v = columns(o.in(0));
  o.expect(o.in(0), r * v, t);
  o.expect(o.in(1), r, DType::i32);
  o.expect(0 <= attrs.classes && attrs.classes <= v && attrs.first_class >= 0,
           "more classes than logits");
  o.expect(attrs.smoothing == 0 || attrs.all_classes >= attrs.first_class + attrs.classes,
           "smoothing of a part of the classes needs their number");
}

inline constexpr OpRule class_sums{
    .attrs = kAttrs<CrossEntropyAttrs>,
    .reads_targets = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          const auto attrs = attrs_as<CrossEntropyAttrs>(op.attrs);
          expect_classes(o, attrs);
          o.expect(o.out(0), rows(o.in(0)) * class_sums_of(attrs), DType::f32);
        },
    .axes = axes_are<"row class, row -> row">,
};

inline constexpr OpRule cross_entropy_part{
    .of_model = true,
    .attrs = kAttrs<CrossEntropyAttrs>,
    .reads_targets = true,
    .makes_loss = true,
    .sums = {.count = 1},
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 4, 1, 2);
          const auto attrs = attrs_as<CrossEntropyAttrs>(op.attrs);
          expect_classes(o, attrs);
          const int64_t r = rows(o.in(0));
          o.expect(o.in(2).dtype == DType::f32 &&
                       o.in(2).shape.elements() % (r * class_sums_of(attrs)) == 0,
                   "each part of the classes has three sums a row, with smoothing four");
          o.expect(o.out(0), attrs.by_row ? r : 1, DType::f64);
          expect_losses_before(o, 3, attrs.by_row);
          if (o.has_out(1)) o.expect(o.out(1), o.in(0).shape.elements(), o.values(o.in(0)));
          o.no_alias(0, 1);
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          check(op.writes.size() > 1 && op.writes[1] != kNone,
                "cross_entropy_part was emitted without its gradient");
          g.contribute(op.reads[0], op.writes[1]);
        },
    .axes = loss_axes,
};

// The logarithm of the probability that a softmax gives to the targets of each row, one or several, and its gradient, which
// reads the logits once more. A target below 0 has 0, and no gradient.
// Returns how many targets a row has.
inline int64_t targets_of_row(const Buffer& logits, const Buffer& targets) {
  const int64_t r = rows(logits);
  return r == 0 ? 1 : std::max<int64_t>(1, targets.shape.elements() / r);
}

// Returns the elements of the targets.
inline int64_t expect_logits(const Operands& o, const Buffer& logits, const Buffer& targets,
                             const LogProbsAttrs& attrs) {
  const int64_t r = rows(logits), v = columns(logits), k = targets_of_row(logits, targets);
  o.expect(0 <= attrs.classes && attrs.classes <= v, "more classes than logits");
  o.expect(k <= LogProbsAttrs::kMostTargets, "more targets of a row than 1024");
  o.expect(logits, r * v, o.values(logits));
  o.expect(targets, r * k, DType::i32);
  return r * k;
}

inline OpAxes log_probs_axes(const Program& p, const Instruction& op) {
  if (targets_of_row(p.at(op.reads[0]), p.at(op.reads[1])) == 1) return "row class, row -> row";
  return "row class, row channel -> row channel";
}

inline OpAxes log_probs_grad_axes(const Program& p, const Instruction& op) {
  if (targets_of_row(p.at(op.reads[1]), p.at(op.reads[2])) == 1)
    return "row, row class, row -> row class";
  return "row channel, row class, row channel -> row class";
}

inline constexpr OpRule log_probs{
    .of_model = true,
    .attrs = kAttrs<LogProbsAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(2, 2, 1, 1);
          o.expect(o.out(0), expect_logits(o, o.in(0), o.in(1), attrs_as<LogProbsAttrs>(op.attrs)),
                   DType::f32);
          o.no_alias();
        },
    .backward =
        [](const Instruction& op, Gradients& g) {
          const BufferId logits = op.reads[0], d_y = g.of(op.writes[0]);
          if (!g.needs(logits)) return;
          const bool in_place = attrs_as<LogProbsAttrs>(op.attrs).in_place;
          const BufferId d_logits = in_place ? logits : g.like(logits);
          g.emit(OpKind::log_probs_grad, op.attrs, {d_y, logits, op.reads[1]}, {d_logits});
          g.contribute(logits, d_logits);
        },
    .axes = log_probs_axes,
};

inline constexpr OpRule log_probs_grad{
    .attrs = kAttrs<LogProbsAttrs>,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(3, 3, 1, 1);
          o.expect(o.in(0), expect_logits(o, o.in(1), o.in(2), attrs_as<LogProbsAttrs>(op.attrs)),
                   DType::f32);
          o.expect(o.out(0), o.in(1).shape.elements(), o.values(o.in(1)));
          o.no_alias(1, 0);
        },
    .axes = log_probs_grad_axes,
};

}  // namespace dstrain::ops
