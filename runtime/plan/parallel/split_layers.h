// Division of a forward pass among the ranks of a tensor group, which have parts of the same layers, and of a sequence
// group, which have parts of the same samples. It runs before the backward pass, whose rules then emit the collectives
// that bring gradients back; so a model knows nothing of either.
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

#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// Divides the forward pass of a model for the rank at `place`. Does nothing where there is one rank along both axes.
// `row_multiple`: rows of a part of the vocabulary are padded to a multiple of it, as ForwardOptions has it. Throws
// InternalError if rows or heads do not divide evenly, which the configuration refuses before.
void split_layers(Program& program, const Place& place, int64_t row_multiple);

// Gives the parameters that all ranks of a tensor group have alike units of their own, "U:replicated", behind those of
// the same kind that it divides: their gradients are added over the tensor group, too, which also divides their state.
// Runs after separate_frozen().
void separate_replicated(Program& program, const Place& place);

}  // namespace dstrain
