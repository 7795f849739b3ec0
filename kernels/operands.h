// What every backend's kernels are made with: a kernel from a function, and the reading of operands.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/ir/kernel.h"

namespace dstrain {

// A kernel from a function of KernelCall. It holds its constant arguments and no memory, and may run on
// any operands of its spec.
template <class F>
class Closure final : public Kernel {
 public:
  explicit Closure(F run) : run_(std::move(run)) {}
  void run(const KernelCall& call) const override { run_(call); }

 private:
  F run_;
};

template <class F>
std::unique_ptr<Kernel> kernel_of(F run) {
  return std::make_unique<Closure<F>>(std::move(run));
}

// Whether operand i of a spec is there.
inline bool present(std::span<const TensorSpec> operands, size_t i) {
  return i < operands.size() && operands[i].shape.elements() > 0;
}

inline int64_t elements(const TensorSpec& operand) {
  return operand.shape.elements();
}
inline int64_t columns(const TensorSpec& operand) {
  return operand.shape[-1];
}
inline int64_t rows(const TensorSpec& operand) {
  return operand.shape.elements() / std::max<int64_t>(1, columns(operand));
}

// Operand i of a call as a T*, null where it is absent.
template <class T = void>
T* data(std::span<const Tensor> operands, size_t i) {
  return i < operands.size() ? static_cast<T*>(operands[i].data) : nullptr;
}

}  // namespace dstrain
