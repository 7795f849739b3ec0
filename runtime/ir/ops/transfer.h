// Transfers of buffers from one space to another.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Checks a transfer between two buffers of the same size and dtype. `legal`: whether it is one of these spaces.
template <class Legal>
void check_transfer(const Program& p, const Instruction& op, std::string_view between,
                    const Legal& legal) {
  const Operands o(p, op);
  o.count(1, 1, 1, 1);
  o.expect(o.in(0).dtype == o.out(0).dtype && o.in(0).shape.elements() == o.out(0).shape.elements(),
           "dtypes or element counts differ");
  o.expect(legal(p.space_of(op.reads[0]), p.space_of(op.writes[0])), between);
}

inline constexpr OpRule swap_in{
    .queue = Queue::io,
    .done_by = DoneBy::drives,
    .check =
        [](const Program& p, const Instruction& op) {
          check_transfer(p, op, "goes from disk to the host", [](Space from, Space to) {
            return from == Space::disk && to == Space::host;
          });
        },
};

inline constexpr OpRule swap_out{
    .queue = Queue::io,
    .done_by = DoneBy::drives,
    .check =
        [](const Program& p, const Instruction& op) {
          check_transfer(p, op, "goes from the host to disk", [](Space from, Space to) {
            return from == Space::host && to == Space::disk;
          });
        },
};

inline constexpr OpRule copy{
    .queue = Queue::copy,
    .done_by = DoneBy::copies,
    .check =
        [](const Program& p, const Instruction& op) {
          check_transfer(p, op, "goes between the device and the host", [](Space from, Space to) {
            return from != Space::disk && to != Space::disk && from != to;
          });
        },
};

}  // namespace dstrain::ops
