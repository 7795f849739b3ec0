// Sums over a tensor group in two halves of their columns.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// Where the job asks for it (Job::overlap_tensor): makes each second product of a tensor group, whose results the group
// adds, in two products of a half of its columns each, so that the sum of the first half travels beside the product of the
// second, and joins the halves. The weight of a half is a view of rows. A product stays whole if its halves would not
// begin at whole cache lines, if it is that of an adapter, or if its sum does not follow at once. Instructions of the
// backward pass read nothing of what is replaced. Runs behind gather(), which finds the uses of parameters, and in front of
// pack(). Sums within products keep their operands; only a library that adds in another order where there are fewer columns
// gives other bits.
void halve_sums(Program& program, const Job& job, const Place& place);

}  // namespace dstrain
