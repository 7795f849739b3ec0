// Layers and samples that ranks divide: passes over a program. One divides the forward pass, before the backward pass is made,
// whose rules then emit the collectives that bring gradients back; so a model knows nothing of it. The others decide when
// those collectives travel.
//
// A sequence group divides the rows of a micro-batch; only attention, whose heads the ranks deal out for it, has all rows.
// A tensor group divides
//   - the weights of two products with nothing but operations on single columns or heads between them: the first by its
//     rows, so that each rank has some columns of its result, the second by its columns, so that each rank's result is a
//     part of a sum (Megatron-LM, Shoeybi et al. 2019);
//   - rows of the token embedding and of the head with its loss, which are those of a part of the vocabulary;
//   - rows of the micro-batch everywhere else (norms, dropout, residuals; Korthikanti et al. 2022): rows are gathered in front
//     of the first product, and sums are scattered behind the second.
// Parameters of operations on rows are whole on each rank; their gradients are those of its rows.
#pragma once

#include <cstdint>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// Divides the forward pass of a model for the rank at `place`. Does nothing where there is one rank along both axes.
// `row_multiple`: rows of a part of the vocabulary are padded to a multiple of it, as ForwardOptions has it. Throws
// InternalError if rows or heads do not divide evenly, which the configuration refuses before.
void split_layers(Program& program, const Place& place, int64_t row_multiple);

// Divides the experts of a model among the ranks of the expert group of the rank at `place`: gives it its experts' part of each
// weight, and adds the exchanges that bring rows to the experts that they chose, and back (runtime/ir/ops/experts/exchange.h).
// A group takes the rows of all its ranks in the worst case, so values between have room for them. Does nothing where there is
// one rank. Throws InternalError if experts do not divide evenly, which the configuration refuses before.
void divide_experts(Program& program, const Place& place);

// Moves each collective of the tensor and of the sequence group forward in the list, to where what it sends has been
// written, but past no more than one product: so it can travel beside that product. Backward rules emit the gradients of a
// product together, and the sum of the input gradient over ranks behind them; so it comes to lie in front of the weight
// gradient. Rows that are gathered again for a weight gradient come to lie in front of the input gradient. A collective
// passes no other operation of a channel, and leaves neither its phase nor its part of the model. Runs after recompute().
// No number changes.
void issue_early(Program& program, const Place& place);

// Where the job asks for it (Job::overlap_tensor): makes each second product of a tensor group, whose results the group
// adds, in two products of a half of its columns each, so that the sum of the first half travels beside the product of the
// second, and joins the halves. The weight of a half is a view of rows. A product stays whole if its halves would not
// begin at whole cache lines, if it is that of an adapter, or if its sum does not follow at once. Instructions of the
// backward pass read nothing of what is replaced. Runs behind gather(), which finds the uses of parameters, and in front of
// pack(). Sums within products keep their operands; only a library that adds in another order where there are fewer columns
// gives other bits.
void halve_sums(Program& program, const Job& job, const Place& place);

}  // namespace dstrain
