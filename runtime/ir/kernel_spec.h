// Makes the KernelSpec of an instruction: its operands' shapes and dtypes in order.
#pragma once

#include <vector>

#include "runtime/ir/kernel.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Owns the operand lists that a KernelSpec points to.
class SpecStorage {
 public:
  SpecStorage(const Program& program, const Instruction& op, int threads);
  const KernelSpec& get() const { return spec_; }

 private:
  std::vector<TensorSpec> in_, out_;
  KernelSpec spec_;
};

// Ops that the executor does itself have no kernel.
constexpr bool has_kernel(OpKind op) {
  return op < OpKind::load_batch;
}

}  // namespace dstrain
