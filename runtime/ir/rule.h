// The rules of all ops, and what follows from them for an instruction.
#pragma once

#include "runtime/ir/op_rule.h"

namespace dstrain {

const OpRule& rule_of(OpKind op);
using RuleOf = const OpRule& (*)(OpKind op);
inline bool has_kernel(OpKind op) {
  return rule_of(op).done_by == DoneBy::kernel;
}
// Returns whether the op computes: on the device, or on the host where its operands are the host's.
inline bool computes(OpKind op) {
  return rule_of(op).queue == Queue::compute;
}
// Returns whether the gradients of the step are complete there (OpRule::ends_gradients).
inline bool ends_gradients(OpKind op) {
  return rule_of(op).ends_gradients;
}
inline bool is_collective(OpKind op) {
  return rule_of(op).done_by == DoneBy::collective;
}
// Returns whether the op adds over ranks.
inline bool adds_over_ranks(OpKind op) {
  return is_collective(op) && is_sum(*rule_of(op).collective);
}
// Returns whether the op makes a sum over ranks, or brings together the parts of one.
inline bool makes_sums_over_ranks(OpKind op) {
  return is_collective(op) && traits_of(*rule_of(op).collective).makes_sums;
}
// Returns whether the op is an end of a message between two ranks.
inline bool is_message(OpKind op) {
  return rule_of(op).collective == Collective::message;
}
// Return whether the instruction is the end of a message that sends, or that receives.
inline bool sends_message(const Instruction& op) {
  return is_message(op.op) && op.writes.empty();
}
inline bool receives_message(const Instruction& op) {
  return is_message(op.op) && op.reads.empty();
}
// Returns what an end of a message sends or receives.
inline BufferId message_of(const Instruction& op) {
  return op.reads.empty() ? op.writes[0] : op.reads[0];
}
// Returns whether the op makes a model's loss.
inline bool makes_loss(OpKind op) {
  return rule_of(op).makes_loss;
}
// Returns whether the op adds over rows in an order that pieces of rows keep (OpRule::sum_order).
inline bool sums_pieces(OpKind op) {
  return rule_of(op).sum_order != SumOrder::whole;
}
// Returns whether the op is posted to a channel and runs beside what follows it.
inline bool is_posted(OpKind op) {
  return rule_of(op).done_by >= DoneBy::collective;
}
// Returns whether the channel of a posted op carries out its operations in the order in which they are posted. A
// drive works on several at a time.
inline bool keeps_order(OpKind op) {
  return rule_of(op).done_by != DoneBy::drives;
}
// Returns whether the host carries the instruction out: a kernel of the CPU, as its operands are the host's.
bool runs_on_host(const Program& program, const Instruction& op);
// Returns the queue that the instruction is printed and traced under.
Queue queue_of(const Program& program, const Instruction& op);
// Throws InternalError naming the instruction if its attributes or operands are not legal for its op.
void check_op(const Program& program, const Instruction& op);
// Returns what the axes of the instruction's operands mean; none has axes where its rule does not say.
inline OpAxes axes_of(const Program& program, const Instruction& op) {
  const OpRule& rule = rule_of(op.op);
  return rule.axes ? rule.axes(program, op) : OpAxes{};
}
// Returns whether all instructions that a buffer is an operand of take its elements without rows and columns, so that it may have
// other ones.
bool is_without_rows(const Program& program, BufferId id);
Cost cost_of(const Program& program, const Instruction& op);
// Returns the FLOPs of the instruction that the model needs: not those of an operation of the model that is repeated
// after the forward phase.
double needed_flops(const Program& program, const Instruction& op);

}  // namespace dstrain
