// Helpers for making kernels on every device: a kernel from a function, and access to operands.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/ir/kernel.h"

namespace dstrain {

// A kernel made from a function of KernelCall. The function holds constant arguments and no memory, so the
// kernel may run on any operands that match its spec.
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

// Returns whether operand i of a spec is present.
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

// Returns the address of operand i of a call, null if it is absent.
template <class T = void>
T* data(std::span<const Tensor> operands, size_t i) {
  return i < operands.size() ? static_cast<T*>(operands[i].data) : nullptr;
}

// Returns the scratch memory of a call as `count` elements of T. Throws InternalError if it has fewer: a plan gave the
// kernel less than it writes.
template <class T>
T* workspace(const KernelCall& call, int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  check(bytes == 0 || (call.workspace.data && call.workspace.bytes() >= bytes),
        "a kernel writes {} bytes of scratch memory, and the plan gave it {}", bytes,
        call.workspace.data ? call.workspace.bytes() : 0);
  return call.workspace.as<T>();
}

}  // namespace dstrain
