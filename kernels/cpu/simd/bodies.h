// The kernels of this folder by family, one source file each; simd.cpp chooses among them.
// A kernel is a closure over its constant arguments: it holds no memory and may run on any operands
// of its spec.
#pragma once

#include <memory>
#include <utility>

#include "kernels/kernel.h"

namespace dstrain::simd {

std::unique_ptr<Kernel> make_embed(const KernelSpec& spec);
std::unique_ptr<Kernel> make_embed_token_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_embed_position_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_layer_norm(const KernelSpec& spec);
std::unique_ptr<Kernel> make_layer_norm_input_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_layer_norm_weight_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_activation(const KernelSpec& spec);
std::unique_ptr<Kernel> make_activation_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_add(const KernelSpec& spec);
std::unique_ptr<Kernel> make_add_dropout(const KernelSpec& spec);
std::unique_ptr<Kernel> make_dropout_grad(const KernelSpec& spec);
std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec);
std::unique_ptr<Kernel> make_sum_rows(const KernelSpec& spec);
std::unique_ptr<Kernel> make_cast(const KernelSpec& spec);
std::unique_ptr<Kernel> make_accumulate(const KernelSpec& spec);
std::unique_ptr<Kernel> make_round_wire(const KernelSpec& spec);
std::unique_ptr<Kernel> make_sum_squares(const KernelSpec& spec);
std::unique_ptr<Kernel> make_adam(const KernelSpec& spec);
std::unique_ptr<Kernel> make_sgd(const KernelSpec& spec);

// Scratch bytes of the kernels that need some.
int64_t cross_entropy_workspace(const KernelSpec& spec);
int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec);
int64_t sum_rows_workspace(const KernelSpec& spec);
int64_t sum_squares_workspace(const KernelSpec& spec);

// A kernel from a function of KernelCall.
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

}  // namespace dstrain::simd
