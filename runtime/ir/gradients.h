// Gradients: what a backward rule uses to emit instructions. It knows the gradient of every value that
// the backward pass has reached and appends instructions to the program. A forward value that a rule
// reads is kept for it; nothing has to declare that.
#pragma once

#include <unordered_map>
#include <vector>

#include "runtime/ir/program.h"

namespace dstrain {

class Gradients {
 public:
  explicit Gradients(Program& program) : program_(program) {}

  const Program& program() const { return program_; }

  // Returns the gradient of `value`, or kNone if nothing has contributed to it yet.
  BufferId of(BufferId value) const;
  // Returns whether a gradient of `value` is needed, because it depends on a parameter that is not frozen.
  bool needs(BufferId value) const;
  // Marks what `op` writes as needing gradients if one of its operands does. Call in forward order.
  void mark(const Instruction& op);

  // Returns a forward value for an instruction of the backward pass to read: itself, or what an instruction of the backward
  // pass unpacks once more, so that an unpacked weight is not kept.
  BufferId again(BufferId value);

  // Returns a new activation-gradient buffer with the shape and dtype of `value`.
  BufferId like(BufferId value);
  // Returns a new buffer for what the backward pass computes of `value`, with another dtype, or another shape too.
  BufferId fresh(BufferId value, DType dtype);
  BufferId fresh(BufferId value, const Shape& shape, DType dtype);
  // Takes `gradient` as a contribution to the gradient of `value`; later contributions are added.
  void contribute(BufferId value, BufferId gradient);
  // Like contribute(), for an op that has already added of(value) to `gradient`.
  void replace(BufferId value, BufferId gradient);
  // Adds to the gradients of the parameters that `op` reads like any other values what its rule has contributed. Call behind the
  // rule.
  void settle(const Instruction& op);
  // Returns whether `gradient` is the gradient of one value only, so that an op may overwrite it.
  bool exclusive(BufferId gradient) const;
  // Returns where an op that reads `gradient` writes that of `value`: over it, or where others need it, or it has other dimensions,
  // to a new buffer.
  BufferId place_of(BufferId value, BufferId gradient);

  // Appends an activation-gradient instruction, which is returned until the next one is appended.
  Instruction& emit(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                    std::vector<BufferId> writes);
  // Appends an instruction that writes the gradients of `values`, which are parameters, and adds to
  // them from the second micro-batch on. Does nothing if none of them needs one: where all are frozen or kNone. The
  // gradient of one that needs none is kNone. `terms`: of each gradient (Parameter::gradient_terms).
  void emit_weight(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                   const std::vector<BufferId>& values, int64_t terms = 1);

  // The same for an op that always writes all gradients: one that nothing needs goes to a buffer that nothing reads.
  void emit_weights_together(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                             std::vector<BufferId> values);

  // Instructions that follow compute gradients of what `op` reads: they belong to its sublayer.
  void set_origin(const Instruction& op) {
    group_ = op.group;
    sublayer_ = op.sublayer;
  }

 private:
  BufferId weight_gradient(BufferId value, int64_t terms, Accumulate* mode);

  Program& program_;
  std::unordered_map<BufferId, BufferId> gradient_;
  std::unordered_map<BufferId, int> uses_;
  std::unordered_map<BufferId, BufferId> unread_;       // gradients of frozen parameters
  std::unordered_map<BufferId, Instruction> unpacked_;  // by what it writes
  std::vector<char> needs_;
  int32_t group_ = 0, sublayer_ = 0;
};

}  // namespace dstrain
