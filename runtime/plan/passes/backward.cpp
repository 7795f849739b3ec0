#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {

void backward(Program& program) {
  Gradients g(program);
  const size_t forward = program.instructions.size();
  for (size_t i = 0; i < forward; ++i) g.mark(program.instructions[i]);
  for (size_t i = forward; i-- > 0;) {
    const Instruction op = program.instructions[i];  // a copy: emitting moves the list
    const BufferId result = op.writes[0];
    const bool wanted = makes_loss(op.op) || g.of(result) != kNone;
    if (!wanted || !g.needs(result)) continue;
    const OpRule& rule = rule_of(op.op);
    check(rule.backward != nullptr, "{} has no backward rule", rule.name);
    g.set_origin(op);
    rule.backward(op, g);
    g.settle(op);
  }
}

}  // namespace dstrain
