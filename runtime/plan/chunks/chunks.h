// Parts of a step that are computed in pieces of rows, one after the other, so that what they need for a row is held for
// one piece at a time: the loss, and the MLP of each layer.
#pragma once

#include <cstdint>
#include <set>

#include "runtime/ir/kernel.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Computes logits, losses and their gradients in about `chunks` pieces of rows, so that logits are never whole (1: does
// nothing): after keep_stage(), before recompute(). What is left of the head's backward pass belongs to the forward
// phase then. Pieces consist of whole parts of the weight gradient's sums (KernelLibrary::sum_rows_part); losses are
// added in the order of all rows. So no number changes where the library's products keep their promise.
void chunk_loss(Program& program, int64_t chunks, const KernelLibrary& library, int threads);

// Computes MLPs in about `chunks` pieces of rows (1: does nothing): after recompute(), before split_backward(). An MLP is
// products that read the same rows, operations on single columns of their results, and the products that read these.
// What lies between is held for a piece at a time, and the backward pass computes it again. Where anything else reads it
// an MLP stays whole. Pieces consist of whole parts of the sums that weight gradients are made of, so no number changes
// where the library's products keep their promise; input gradients are written row by row. Returns the gradients of
// parameters that are computed in pieces, for split_backward().
std::set<BufferId> chunk_mlp(Program& program, int64_t chunks, const KernelLibrary& library,
                             int threads);

}  // namespace dstrain
