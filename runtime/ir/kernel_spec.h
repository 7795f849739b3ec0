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

}  // namespace dstrain
