// The executor's own work at the beginning and the end of a step.
#pragma once

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

inline constexpr OpRule load_batch{
    .queue = Queue::host,
    .done_by = DoneBy::executor,
    .begins_step = true,
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(0, 0, 1, SIZE_MAX);
          for (size_t i = 0; i < op.writes.size(); ++i)
            o.expect(o.out(i).dtype == DType::i32 || o.out(i).dtype == DType::f32,
                     "inputs are loaded as i32 or f32");
        },
};

inline constexpr OpRule zero{
    .done_by = DoneBy::executor,
    .check = [](const Program& p, const Instruction& op) { Operands(p, op).count(0, 0, 1, 1); },
};

inline constexpr OpRule reduce_counts{
    .queue = Queue::comm,
    .done_by = DoneBy::executor,
    .begins_step = true,
};

inline constexpr OpRule finish_gradients{
    .queue = Queue::comm,
    .done_by = DoneBy::executor,
    .ends_gradients = true,
};

}  // namespace dstrain::ops
