// OpRule: everything the plan and the executor know about an op: who does it, on which queue, the shapes
// and dtypes it accepts, its cost, and the ops that compute its gradients. A new op is a line in op_list.def and a
// rule in runtime/ir/ops, a constant of the op's name; its kernels are in kernels/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "runtime/core/collective/collective.h"
#include "runtime/ir/gradients.h"
#include "runtime/ir/operand_axes.h"
#include "runtime/ir/program.h"
#include "runtime/ir/slots.h"

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
template <class Attrs, class... All>
consteval size_t index_of_attrs(std::type_identity<std::variant<All...>>) {
  size_t index = 0;
  bool found = false;
  ((found = found || std::is_same_v<Attrs, All>, index += found ? 0 : 1), ...);
  return index;
}
template <class Attrs>
inline constexpr size_t kAttrs = index_of_attrs<Attrs>(std::type_identity<OpAttrs>());

// How an op that adds over rows does it, for pieces of rows that give the same bits.
enum class SumOrder : uint8_t {
  whole,  // it has no sums of pieces
  library_parts,  // in parts that its kernel library chooses (KernelLibrary::sum_rows_part), added to what is there
  row_blocks,  // in RowBlocks: SumRowsAttrs names the sums of blocks, and their sum
};

// The two ops that compute an op where each of several ranks has some indices of an axis over which it adds, and a plain
// sum of parts would not do.
struct InParts {
  OpKind own{};  // reads the same operands, and writes what the others need of this rank's part
  OpKind
      all{};  // reads the same operands and what all ranks have written so, and writes the op's results
};

// Two ops that an op does at once, the second one right behind the first.
struct TwoOps {
  OpKind first{}, second{};
  // Returns `first` with what the op reads, its attributes and whether it accumulates; it writes the results of both.
  // Nothing if `second` does not belong to `first`.
  std::optional<Instruction> (*join)(const Instruction& first, const Instruction& second) = nullptr;
};

// The sizes of a weight as the model has it: without what fills up a vocabulary or the parts of a tensor group.
struct WeightSizes {
  double elements = 0, features = 0;  // features: rows
};

// Work as a flops profiler counts it: a multiplication and an addition are one MAC and two FLOPs.
struct CountedWork {
  double macs = 0, flops = 0;
};

// Which terms of a weight's gradient an op adds.
enum class GradientTerms : uint8_t {
  none,
  rows,           // those of the rows of a micro-batch
  micro_batches,  // those of micro-batches, each already a sum over rows
};

// Consecutive outputs of an op.
struct OutputRange {
  size_t first = 0, count = SIZE_MAX;
  constexpr bool contains(size_t i) const { return i >= first && i - first < count; }
};

struct OpRule {
  OpKind kind{};  // these two: as the list of ops has them (runtime/ir/op_list.def)
  std::string_view name{};
  Queue queue = Queue::compute;
  DoneBy done_by = DoneBy::kernel;
  // It may run once more in the same micro-batch, over the same operands and into other outputs: it gives the same bits,
  // and has no effect beyond its outputs. Recompute keeps the results of every other op.
  bool repeatable = false;
  // A model's forward pass consists of such ops. Dropout by itself is its own gradient.
  bool of_model = false;
  // It reads its operands through views of an index space (runtime/ir/views), and they have no axes.
  bool walks_space = false;
  // The host does it before the rest of the step, which a device may replay as a graph.
  bool begins_step = false;
  // Before it the step's gradients are completed, and behind it the weights are updated. Operand 0 has each unit's sum of
  // squares of its gradients.
  bool ends_gradients = false;
  size_t attrs = 0;  // which alternative of OpAttrs the op reads: kAttrs<LayerNormAttrs>; 0: none
  // For a collective: which one. send and recv are the two ends of a message.
  std::optional<Collective> collective{};
  int ring_passes = 0;  // of the collective, as its traits have them
  // The part of its FLOPs that a model needs (needed_flops()): less than 1 where it computes values again, 0 where it is
  // an optimizer's or a codec's.
  double needed_part = 1;
  // Returns the work that DeepSpeed's flops profiler counts; null: none. `weight`: the sizes of operand 1, if it is a
  // weight.
  CountedWork (*profiled)(const Program& program, const Instruction& op,
                          const WeightSizes& weight) = nullptr;
  // What profiles call a module whose parameters it reads; empty: it has no name for them.
  std::string_view module{};
  bool prepares_weight = false;  // its result is the weight in operand 0, in another form
  // The operand that may have the weight, operand 1, in the layout that its kernels read fastest (pack_weight); 0: none.
  size_t packed_weight = 0;
  bool reads_targets = false;  // operand 0 has logits, operand 1 their targets
  bool makes_loss = false;     // output 0 is a loss of the model, output 1 its gradient
  bool looks_up = false;       // parameters that it reads are tables, of which it takes rows
  GradientTerms gradient_terms = GradientTerms::none;
  // The outputs that it adds to where the instruction accumulates. It replaces the others.
  OutputRange sums{};
  bool moves_weights = false;  // of an optimizer: its outputs are weights, and state beside them
  bool clips_gradient =
      false;  // operand 0 is the step's gradient, which it multiplies by grad_scale
  bool adds_residual = false;  // it adds what was lost the last time, and replaces that
  // Throws InternalError naming the instruction if shapes, dtypes or aliasing are not legal for the
  // op. Null: any operands are legal.
  void (*check)(const Program& program, const Instruction& op) = nullptr;
  // Returns the FLOPs; null: none that count.
  double (*flops)(const Program& program, const Instruction& op) = nullptr;
  // Emits the ops that compute the gradients of what `op` reads; null: not differentiable.
  void (*backward)(const Instruction& op, Gradients& g) = nullptr;
  // Returns what the axes of its operands mean. Null: its operands have no axes; they are flat, or of one row.
  OpAxes (*axes)(const Program& program, const Instruction& op) = nullptr;
  SumOrder sum_order = SumOrder::whole;
  std::optional<InParts> in_parts{};
  std::optional<TwoOps> joins{};
  // Makes an instruction the one that does the same where rows are tokens of slots (runtime/ir/ops/decode.h). Null: it stays
  // as it is, if it works on each row by itself.
  void (*in_slots)(Program& program, Instruction& op, const Slots& slots) = nullptr;
};

// A text of operand_axes.h as a template argument.
template <size_t kSize>
struct AxesText {
  char text[kSize]{};
  consteval AxesText(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }
  // By value: with a sanitizer GCC 12 does not take the address of a template argument for a constant.
  static consteval OpAxes axes_of(AxesText copy) { return OpAxes(copy.text); }
};
// OpRule::axes of an op whose axes mean the same in all instructions.
template <AxesText kText>
OpAxes axes_are(const Program&, const Instruction&) {
  static constexpr OpAxes axes = decltype(kText)::axes_of(kText);
  return axes;
}

}  // namespace dstrain
