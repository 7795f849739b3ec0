// The gradients of the general ops: a product of the result's gradient and a formula's derivative, which goes back to an
// operand through its view.
#pragma once

#include <array>
#include <vector>

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// A formula of operands that are read through views of one index space.
struct Term {
  Shape space{};
  Formula formula{};
  std::vector<BufferId> reads{};
  std::vector<View> views{};

  // Adds an operand. Returns its element. Throws InternalError at more than Formula::kMostInputs.
  Formula operand(BufferId id, const View& view);
  // Adds operands. Returns the number of each.
  std::array<int, Formula::kMostInputs> with_all(const std::vector<BufferId>& ids,
                                                 const std::vector<View>& of);
  // Adds those operands of another formula that it reads; `ids` and `of` are all that it might. Returns the formula of
  // these operands.
  Formula formula_of(const Formula& other, const std::vector<BufferId>& ids,
                     const std::vector<View>& of);
};

// Checks that the operands are values, or integers, and that the views read elements that are there.
void expect_walk(const Operands& o, const Shape& space, const std::vector<View>& views,
                 size_t operands);

// Checks that a view of operand `i` reads elements that are there.
void expect_inside(const Operands& o, size_t i, const View& view, const Shape& space);

// Emits the gradient of `x`, which an op reads through `view`: the sums of the term over all indices that read an element.
// Operand 0 of the term is the gradient of a result, and has an element at each index. Where nothing is summed the gradient that
// `x` has already is added, too. Throws InternalError where the view
// has no adjoint (runtime/ir/views/adjoint.h).
void emit_through(Gradients& g, BufferId x, View view, Term term);

// Emits the gradient of the first operand of a linear op: its transpose, which has the same attributes and the same other
// operands.
void emit_transpose(const Instruction& op, OpKind transpose, Gradients& g);

}  // namespace dstrain::ops
