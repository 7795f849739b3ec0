// Sources: which instruction of a forward pass a value comes from, and of which values it is a copy. And what the rules of
// recognition have in common.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/program.h"
#include "runtime/ir/views/view.h"

namespace dstrain {

// Knows the instructions that a program has when the object is made.
class Sources {
 public:
  explicit Sources(const Program& program);

  // Returns the instruction that alone writes a buffer, if it belongs to the sublayer. Nothing if it does not: what comes from
  // another sublayer is read as it is, since a pipeline may be cut there. Nothing of kNone.
  const Instruction* of(BufferId id, int32_t sublayer) const;
  // Returns whether one instruction writes a buffer, or none.
  bool is_written_once(BufferId id) const { return writers_[static_cast<size_t>(id)] >= -1; }
  // Returns how many operands of instructions the buffer is.
  int readers(BufferId id) const { return readers_[static_cast<size_t>(id)]; }

  // Elements of a buffer.
  struct Copied {
    BufferId buffer = kNone;
    SeenElements elements{};
  };
  // Returns what the elements of a buffer are copies of, in their order: its own elements, if it is no copy.
  Copied copied(BufferId id, int32_t sublayer) const;

 private:
  const Program& program_;
  std::vector<int32_t>
      writers_;  // of each buffer: the instruction's index, -1 for none, -2 for several
  std::vector<int32_t> readers_;
};

// Returns the attributes of a map that walks through a space, and through which gradients go; null for others.
const MapAttrs* walking_map(const Instruction& op);
// Returns whether a view of a space reads one value for each index of its first dimensions, in order, and the same one for
// all of the last dimension.
bool is_by_row(const View& view, const Shape& space);
// Returns whether a view of a space reads one value for each index of the last dimension, in order.
bool is_by_column(const View& view, const Shape& space);
// Returns whether a view of a space reads the first elements of rows of `width`, one row after the other.
bool is_of_rows(const View& view, const Shape& space, int64_t width);
// Returns an instruction that does a part of what another one did, where that one was.
Instruction in_place_of(const Instruction& op, OpKind kind, OpAttrs attrs,
                        std::vector<BufferId> reads, std::vector<BufferId> writes);
// Lets a buffer have rows of so many columns. Returns whether it does: what reads and writes it must not want others.
bool make_rows(Program& program, BufferId id, int64_t columns);

// Puts what `instead` returns in the place of each instruction, which stays if that is nothing.
template <class F>
void replace_each(Program& program, const F& instead) {
  std::vector<Instruction> instructions;
  for (const Instruction& op : program.instructions) {
    std::vector<Instruction> found = instead(op);
    if (found.empty()) found = {op};
    instructions.insert(instructions.end(), found.begin(), found.end());
  }
  program.instructions = std::move(instructions);
}

}  // namespace dstrain
