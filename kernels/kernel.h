// The one interface between a plan and the bodies of its ops. A library (one per device) makes a
// kernel for an op at given shapes and dtypes when the plan is built; running it allocates nothing,
// decides nothing and checks nothing: shapes, dtypes and aliasing were checked by the op's rule.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/core/step_rules.h"
#include "runtime/core/tensor.h"
#include "runtime/ir/op.h"

namespace dstrain {

struct TensorSpec {  // an absent operand has no elements: Shape{0}
  Shape shape{0};
  DType dtype = DType::f32;
};

struct KernelSpec {
  OpKind op{};
  OpAttrs attrs;
  std::span<const TensorSpec> in;  // in the order of op.h, absent ones included
  std::span<const TensorSpec> out;
  int threads = 1;  // OpenMP threads the kernel may use
};

// What one run of a kernel is given. Operands stand in the order of op.h; absent ones are null.
struct KernelCall {
  std::span<const Tensor> in;
  std::span<const Tensor> out;
  Tensor workspace;  // u8, 64-byte aligned, at least workspace_bytes(spec)
  const StepState* state = nullptr;
  int64_t sample_offset =
      0;  // global counter of sample b of this micro-batch = state->first_sample + sample_offset + b
  bool accumulate =
      false;  // add to weight gradients, loss and `accumulate`'s output instead of writing them
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Effect as op.h states; complete on return (CPU) or enqueued in order (devices). Allocates nothing
  // but what a math library does inside its own call.
  virtual void run(const KernelCall& call) const = 0;
};

// finish_gradients on a device, so that the step goes on without the host: two kernels, between which
// ranks may exchange what the first one wrote.
class FinishKernels {
 public:
  virtual ~FinishKernels() = default;
  // mine f64 (3) = {sum of `square_sums` f64 (units) in order, `loss` f64 (1), state->stop}.
  virtual void collect(Tensor square_sums, Tensor loss, const StepState* state,
                       Tensor mine) const = 0;
  // Adds `all` f64 (ranks, 3) in rank order into the state's sums; stop: whether any rank says so;
  // then finish_step.
  virtual void finish(Tensor all, StepState* state) const = 0;
};

class KernelLibrary {
 public:
  virtual ~KernelLibrary() = default;
  // Bytes of scratch memory `run` needs; placed by the plan, shared between instructions.
  virtual int64_t workspace_bytes(const KernelSpec& spec) const = 0;
  // Bytes of the layout in which a product of `spec` (linear or linear_input_grad) prefers its
  // weight when packed once per step, or 0 where packing does not pay.
  virtual int64_t packed_bytes(const KernelSpec& spec) const = 0;
  // Whether `make` has one kernel for the product of `spec` (linear or linear_input_grad) with its gelu,
  // better than a product and an op for gelu. Asked of sizes alone.
  virtual bool fuses(const KernelSpec&) const { return false; }
  // Throws InternalError where the library has no body for the op and dtypes.
  virtual std::unique_ptr<Kernel> make(const KernelSpec& spec) const = 0;
  // Null where finish_gradients is the host's work.
  virtual std::unique_ptr<FinishKernels> make_finish(const FinishRule&) const { return nullptr; }
  virtual std::string description() const = 0;  // "cpu with amx"
};

}  // namespace dstrain
