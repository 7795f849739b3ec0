// The interface between a plan and the implementations of its ops. A KernelLibrary (one per device) makes
// a kernel for an op at given shapes and dtypes before the first step; running the kernel allocates nothing
// and checks its scratch memory alone, because the op's rule has checked shapes, dtypes and aliasing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/core/devices/rank_sum.h"
#include "runtime/core/step_rules.h"
#include "runtime/core/tensor.h"
#include "runtime/ir/op.h"

namespace dstrain {

// The shape and the dtype of one operand of a kernel. Shape{0} means that the operand is absent.
struct TensorSpec {
  Shape shape{0};
  DType dtype = DType::f32;
};

// The description of a kernel to be made: the op, its attributes and the specs of its operands. The lists that
// `in` and `out` point to belong to the caller.
struct KernelSpec {
  OpKind op{};
  OpAttrs attrs;
  std::span<const TensorSpec> in;  // in the order of op.h, absent ones included
  std::span<const TensorSpec> out;
  int threads = 1;  // threads the kernel may use
};

// The arguments of one run of a kernel. Operands are in the order of op.h; absent ones are null.
struct KernelCall {
  std::span<const Tensor> in;
  std::span<const Tensor> out;
  Tensor workspace;  // u8, 64-byte aligned, at least workspace_bytes(spec)
  const StepState* state = nullptr;
  // The global counter of sample b of this micro-batch is state->first_sample + sample_offset + b.
  int64_t sample_offset = 0;
  // Add to weight gradients, loss and `accumulate`'s output instead of overwriting them.
  bool accumulate = false;
};

// An implementation of one op at fixed shapes and dtypes. It can run any number of times, on any operands that
// match its spec.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Does what op.h states. On the CPU the work is complete on return; on a device it is enqueued in order.
  // Allocates nothing, except inside calls of a math library.
  virtual void run(const KernelCall& call) const = 0;
};

// One launch for several instructions of one op that do not depend on each other.
class MultiTensorKernel {
 public:
  virtual ~MultiTensorKernel() = default;
  // Does what the kernels of its specs would do one after the other; calls[i] is that of spec i.
  virtual void run(std::span<const KernelCall> calls) const = 0;
};

// The two kernels that do finish_gradients on a device, so that the step continues without the host. Between
// them the ranks exchange what the first one, collect(), wrote.
class FinishKernels {
 public:
  virtual ~FinishKernels() = default;
  // mine f64 (3) = {sum of `square_sums` f64 (units) in order, `loss` f64 (1), state->stop}.
  virtual void collect(Tensor square_sums, Tensor loss, const StepState* state,
                       Tensor mine) const = 0;
  // Adds `all` f64 (ranks, 3) in rank order to the state's sums, sets `stop` if any rank asks for it,
  // then calls finish_step.
  virtual void finish(Tensor all, StepState* state) const = 0;
};

// Makes the kernels of one device: one for each op of a plan. It also tells the plan how much memory they
// need.
class KernelLibrary {
 public:
  virtual ~KernelLibrary() = default;
  // Bytes of scratch memory that `run` needs. The plan places it and shares it between instructions.
  virtual int64_t workspace_bytes(const KernelSpec& spec) const = 0;
  // Bytes of the packed weight that the product of `spec` (linear or linear_input_grad) prefers, packed
  // once per step; 0 if packing does not pay.
  virtual int64_t packed_bytes(const KernelSpec& spec) const = 0;
  // Whether one kernel is faster than two for the product of `spec` (linear or linear_input_grad) and its gelu or
  // residual, or for the two ops of a layer_norm_grad or add_layer_norm. Depends on sizes alone.
  virtual bool fuses(const KernelSpec&) const { return false; }
  // A vocabulary's weights have a multiple of so many rows in memory, and logits as many columns.
  virtual int64_t row_multiple() const { return 1; }
  // Rows of a part of the sums of a linear_weight_grad: where the rows are divided at multiples of it, the
  // products of the pieces, added in order, have the bits of the whole product. On a GPU: at which products are fast.
  virtual int64_t sum_rows_part(const KernelSpec&) const { return 1; }
  // Returns the kernel of as many of the first `specs` as one launch takes, all of them the same op; null if the
  // library launches the first one by itself. `count`: set to their number.
  virtual std::unique_ptr<MultiTensorKernel> make_multi_tensor(
      std::span<const KernelSpec> /*specs*/, size_t& /*count*/) const {
    return nullptr;
  }
  // Throws InternalError if the library has no implementation for the op and dtypes.
  virtual std::unique_ptr<Kernel> make(const KernelSpec& spec) const = 0;
  // Returns null if the host runs finish_gradients.
  virtual std::unique_ptr<FinishKernels> make_finish(const FinishRule&) const { return nullptr; }
  // Returns null if the device's sums over ranks are the host's.
  virtual std::unique_ptr<RankSum> make_rank_sum() const { return nullptr; }
  virtual std::string description() const = 0;  // "cpu with amx"
};

}  // namespace dstrain
