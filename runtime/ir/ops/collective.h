// Sums and copies of unit buffers between the ranks of the data-parallel group, and messages between two ranks.
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
    .collective = Collective::reduce_scatter,
    .check = [](const Program& p, const Instruction& op) { check_slice(p, op, 0); },
};

inline constexpr OpRule all_gather{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
    .collective = Collective::all_gather,
    .check = [](const Program& p, const Instruction& op) { check_slice(p, op, 1); },
};

inline constexpr OpRule all_to_all{
    .queue = Queue::comm,
    .done_by = DoneBy::collective,
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
