// Gradients: what an op's backward rule writes with. It knows the gradient of every value reached
// so far and appends backward instructions to the program. What a rule reads is thereby saved from
// the forward pass: nothing declares it.
#pragma once

#include <unordered_map>
#include <vector>

#include "runtime/ir/program.h"

namespace dstrain {

class Gradients {
 public:
  explicit Gradients(Program& program) : program_(program) {}

  const Program& program() const { return program_; }

  // The gradient of `value`, or kNone while nothing has contributed to it.
  BufferId of(BufferId value) const;
  // Whether a gradient of `value` is wanted: some parameter stands behind it.
  bool needs(BufferId value) const;
  // Says that the values written by `op` need gradients iff one of its operands does (forward
  // order).
  void mark(const Instruction& op);

  // A new activation-gradient buffer with the shape and dtype of `value`.
  BufferId like(BufferId value);
  // `gradient` is a contribution to the gradient of `value`; the second and later ones are added.
  void contribute(BufferId value, BufferId gradient);
  // As contribute, where the emitted op has already added of(value) into `gradient`.
  void replace(BufferId value, BufferId gradient);
  // True where `gradient` stands for one value only, so that an op may overwrite it.
  bool exclusive(BufferId gradient) const;

  // Appends an activation-gradient instruction.
  void emit(OpKind op, OpAttrs attrs, std::vector<BufferId> reads, std::vector<BufferId> writes);
  // Appends an instruction that writes (and over micro-batches accumulates) the gradients of
  // `values`, which are parameters; does nothing where all of them are kNone.
  void emit_weight(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                   std::vector<BufferId> values);

  void set_group(int32_t group) { group_ = group; }

 private:
  BufferId weight_gradient(BufferId value, Accumulate* mode);

  Program& program_;
  std::unordered_map<BufferId, BufferId> gradient_;
  std::unordered_map<BufferId, int> uses_;
  std::vector<char> needs_;
  int32_t group_ = 0;
};

}  // namespace dstrain
