// OpRule: everything the plan and the executor know about an op: who does it, on which queue, the shapes
// and dtypes it accepts, its cost, and the ops that compute its gradients. A new op is a line in ops.def and a
// rule in runtime/ir/ops, a constant of the op's name; its kernels are in kernels/.
#pragma once

#include <optional>

#include "runtime/core/collective/collective.h"
#include "runtime/ir/gradients.h"
#include "runtime/ir/program.h"

namespace dstrain {

// The work of one instruction, from which its time is estimated: operations and memory traffic.
struct Cost {
  double flops = 0;
  double bytes = 0;  // memory traffic if every operand moves once
};

// The queue that an instruction is printed and traced under.
enum class Queue : uint8_t { compute, comm, host, copy, io };
inline constexpr int kQueues = 5;
std::string_view name_of(Queue queue);

// The part of the runtime that carries out an op. From `collective` on, it does so beside the ops that follow.
enum class DoneBy : uint8_t {
  kernel,      // a KernelLibrary makes it
  executor,    // the executor's own work
  collective,  // the communicator, beside computation; the other ops of the comm queue are awaited
  copies,      // a stream of copies, beside computation
  drives,      // the disk store, beside computation
};

// The index of a type of attributes in OpAttrs.
template <class Attrs>
inline constexpr size_t kAttrs = OpAttrs(Attrs{}).index();

struct OpRule {
  OpKind kind{};  // these two: as the list of ops has them (runtime/ir/ops.def)
  std::string_view name{};
  Queue queue = Queue::compute;
  DoneBy done_by = DoneBy::kernel;
  // It may run once more in the same micro-batch, over the same operands and into other outputs: it gives the same bits,
  // and has no effect beyond its outputs. Recompute keeps the results of every other op.
  bool repeatable = false;
  // A model's forward pass consists of such ops. Dropout by itself is its own gradient.
  bool of_model = false;
  // The host does it before the rest of the step, which a device may replay as a graph.
  bool begins_step = false;
  size_t attrs = 0;  // which alternative of OpAttrs the op reads: kAttrs<LayerNormAttrs>; 0: none
  // For a collective: which one. send and recv are the two ends of a message.
  std::optional<Collective> collective{};
  int ring_passes = 0;  // of the collective, as its traits have them
  // Throws InternalError naming the instruction if shapes, dtypes or aliasing are not legal for the
  // op. Null: any operands are legal.
  void (*check)(const Program& program, const Instruction& op) = nullptr;
  // Returns the FLOPs; null: none that count.
  double (*flops)(const Program& program, const Instruction& op) = nullptr;
  // Emits the ops that compute the gradients of what `op` reads; null: not differentiable.
  void (*backward)(const Instruction& op, Gradients& g) = nullptr;
};

const OpRule& rule_of(OpKind op);
using RuleOf = const OpRule& (*)(OpKind op);
inline bool has_kernel(OpKind op) {
  return rule_of(op).done_by == DoneBy::kernel;
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
Cost cost_of(const Program& program, const Instruction& op);

}  // namespace dstrain
