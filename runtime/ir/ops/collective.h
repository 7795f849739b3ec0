// Sums and copies between the ranks of a group, of unit buffers and of activations, and messages between two ranks.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Checks a collective between a whole buffer and a slice of it. `whole`: 0 if the whole is read, 1 if it is
// written.
inline void check_slice(const Program& p, const Instruction& op, int whole) {
  const Operands o(p, op);
  o.count(1, 1, 1, 1);
  const Buffer& w = whole == 0 ? o.in(0) : o.out(0);
  const Buffer& s = whole == 0 ? o.out(0) : o.in(0);
  o.expect(w.dtype == s.dtype && w.shape.elements() % s.shape.elements() == 0,
           "the slice does not divide the whole");
}

// Emits the collective, among the same ranks, that brings the gradient of what `op` writes to what it reads.
inline void collective_backward(const Instruction& op, Gradients& g, OpKind inverse) {
  const BufferId x = op.reads[0];
  if (!g.needs(x)) return;
  const BufferId d_x = g.like(x);
  g.emit(inverse, {}, {g.of(op.writes[0])}, {d_x}).channel = op.channel;
  g.contribute(x, d_x);
}

inline constexpr OpRule all_reduce{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
    .collective = Collective::all_reduce,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(op.reads[0] == op.writes[0], "works in place");
        },
};

inline constexpr OpRule reduce_scatter{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
    .repeatable = true,
    .collective = Collective::reduce_scatter,
    .check = [](const Program& p, const Instruction& op) { check_slice(p, op, 0); },
    .backward = [](const Instruction& op,
                   Gradients& g) { collective_backward(op, g, OpKind::all_gather); },
};

inline constexpr OpRule all_gather{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
    .repeatable = true,
    .collective = Collective::all_gather,
    .check = [](const Program& p, const Instruction& op) { check_slice(p, op, 1); },
    .backward = [](const Instruction& op,
                   Gradients& g) { collective_backward(op, g, OpKind::reduce_scatter); },
};

inline constexpr OpRule all_to_all{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
    .repeatable = true,
    .collective = Collective::all_to_all,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0).dtype == o.out(0).dtype &&
                       o.in(0).shape.elements() == o.out(0).shape.elements(),
                   "both sides have the same slices");
          o.no_alias();
        },
    .backward = [](const Instruction& op,
                   Gradients& g) { collective_backward(op, g, OpKind::all_to_all); },
};

inline constexpr OpRule send{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
    .collective = Collective::message,
    .check = [](const Program& p, const Instruction& op) { Operands(p, op).count(1, 1, 0, 0); },
};

inline constexpr OpRule recv{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
    .collective = Collective::message,
    .check = [](const Program& p, const Instruction& op) { Operands(p, op).count(0, 0, 1, 1); },
};

}  // namespace dstrain::ops
