// OpRule: all that the plan knows of an op, in one place per op (runtime/ir/ops): the shapes and
// dtypes it accepts, its cost, and which ops give its gradients. Bodies live in kernels/.
#pragma once

#include "runtime/ir/gradients.h"
#include "runtime/ir/program.h"

namespace dstrain {

struct Cost {
  double flops = 0;
  double bytes = 0;  // memory traffic where every operand moves once
};

struct OpRule {
  std::string_view name;
  // Throws InternalError naming the instruction where shapes, dtypes or aliasing are not the op's.
  void (*check)(const Program& program, const Instruction& op) = nullptr;
  // FLOPs only; bytes are the sum of the operands.
  double (*flops)(const Program& program, const Instruction& op) = nullptr;
  // Emits the ops that compute the gradients of what `op` reads; null: not differentiable.
  void (*backward)(const Instruction& op, Gradients& g) = nullptr;
};

const OpRule& rule_of(OpKind op);
Cost cost_of(const Program& program, const Instruction& op);

}  // namespace dstrain
