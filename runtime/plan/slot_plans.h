// Plans that generate text, whose products read the weights in the precision of the files.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/dtype.h"
#include "runtime/ir/program.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// make_slot_plans() (plan.h) whose products read copies of the parameters in `weights`, f32 or a 16-bit dtype in which all
// of them are exact: a step reads half of the bytes, with the same bits as results. Whoever loads the weights fills the
// copies (Buffer::copy_of). Parameters of adapters have none.
RankPlan make_slot_plans(const Job& job, const SlotSizes& sizes, DType weights,
                         const PlanInputs& inputs);

// Lets row_linear read such copies: buffers that live for the run.
void narrow_weights(Program& program, DType weights);

}  // namespace dstrain
