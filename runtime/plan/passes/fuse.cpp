#include <algorithm>
#include <optional>

#include "runtime/ir/kernel_spec.h"
#include "runtime/ir/product.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

bool holds(const std::vector<BufferId>& operands, BufferId id) {
  return std::ranges::find(operands, id) != operands.end();
}
bool uses(const Instruction& op, BufferId id) {
  return holds(op.reads, id) || holds(op.writes, id);
}

class Fusion {
 public:
  Fusion(Program& program, const KernelLibrary& library, int threads)
      : program_(program), library_(library), threads_(threads), last_use_(program.buffers.size()) {
    for (size_t i = 0; i < program.instructions.size(); ++i)
      for_operands(at(i), [&](BufferId id) { last_use_[static_cast<size_t>(id)] = i; });
  }

  void run() {
    std::vector<Instruction>& list = program_.instructions;
    std::vector<char> gone(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].op == OpKind::add_dropout) gone[i] = join_residual(i);
      const auto* attrs = std::get_if<ActivationAttrs>(&list[i].attrs);
      if (!attrs || attrs->activation != Activation::gelu) continue;
      if (list[i].op == OpKind::activation) gone[i] = join_forward(i);
      if (list[i].op == OpKind::activation_grad) gone[i] = join_backward(i);
    }
    size_t i = 0;
    std::erase_if(list, [&](const Instruction&) { return gone[i++] != 0; });
  }

 private:
  const Instruction& at(size_t i) const { return program_.instructions[i]; }

  // Returns the product of kind `op` without an activation that wrote operand `id` of instruction `reader`,
  // if no instruction between the two uses `id`.
  std::optional<size_t> product_before(size_t reader, BufferId id, OpKind op) const {
    for (size_t i = reader; i-- > 0;) {
      if (!uses(at(i), id)) continue;
      const bool fits = at(i).op == op &&
                        attrs_as<ActivationAttrs>(at(i).attrs).activation == Activation::none &&
                        at(i).reads.size() <= kResidualInput && at(i).writes == std::vector{id} &&
                        at(i).when == at(reader).when;
      return fits ? std::optional(i) : std::nullopt;
    }
    return std::nullopt;
  }
  bool used_between(BufferId id, size_t first, size_t last) const {
    for (size_t i = first + 1; i < last; ++i)
      if (uses(at(i), id)) return true;
    return false;
  }
  // Returns whether an instruction behind `i`, where nothing has been fused yet, uses the buffer.
  bool used_after(BufferId id, size_t i) const { return last_use_[static_cast<size_t>(id)] > i; }
  bool written_between(BufferId id, size_t first, size_t last) const {
    for (size_t i = first; i < last; ++i)
      if (holds(at(i).writes, id)) return true;
    return false;
  }

  bool replace(size_t i, Instruction fused) {
    if (!library_.fuses(SpecStorage(program_, fused, threads_).get())) return false;
    program_.instructions[i] = std::move(fused);
    return true;
  }

  // linear -> pre; activation pre -> y
  bool join_forward(size_t i) {
    const BufferId pre = at(i).reads[0], y = at(i).writes[0];
    const std::optional<size_t> product = product_before(i, pre, OpKind::linear);
    if (!product || used_between(y, *product, i)) return false;
    Instruction fused = at(*product);
    fused.attrs = ActivationAttrs{Activation::gelu};
    fused.writes = {y};
    if (used_after(pre, i)) fused.writes.push_back(pre);
    return replace(*product, std::move(fused));
  }

  // linear_input_grad -> d_y; activation_grad d_y, pre -> d_x, which may be d_y
  bool join_backward(size_t i) {
    const BufferId d_y = at(i).reads[0], pre = at(i).reads[1], d_x = at(i).writes[0];
    const std::optional<size_t> product = product_before(i, d_y, OpKind::linear_input_grad);
    if (!product || written_between(pre, *product, i)) return false;
    const bool separate = d_x != d_y;
    if (separate && (used_between(d_x, *product, i) || used_after(d_y, i))) return false;
    Instruction fused = at(*product);
    fused.attrs = ActivationAttrs{Activation::gelu};
    fused.reads.resize(kPreInput + 1, kNone);
    fused.reads[kPreInput] = pre;
    fused.writes = {d_x};
    return replace(*product, std::move(fused));
  }

  // linear -> h; add_dropout x, h -> y without dropout
  bool join_residual(size_t i) {
    if (attrs_as<DropoutAttrs>(at(i).attrs).dropout > 0) return false;
    const BufferId x = at(i).reads[0], h = at(i).reads[1], y = at(i).writes[0];
    const std::optional<size_t> product = product_before(i, h, OpKind::linear);
    if (!product || x == h || used_after(h, i) || used_between(y, *product, i) ||
        written_between(x, *product, i))
      return false;
    Instruction fused = at(*product);
    fused.reads.resize(kResidualInput + 1, kNone);
    fused.reads[kResidualInput] = x;
    fused.writes = {y};
    return replace(*product, std::move(fused));
  }

  Program& program_;
  const KernelLibrary& library_;
  int threads_;
  std::vector<size_t> last_use_;  // of every buffer, before anything was fused
};

}  // namespace

void fuse(Program& program, const KernelLibrary& library, int threads) {
  Fusion(program, library, threads).run();
}

}  // namespace dstrain
