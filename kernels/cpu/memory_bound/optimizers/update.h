// The frame of the optimizers' kernels: what an update changes, and the kernel that divides it among threads.
#pragma once

#include <utility>

#include "kernels/cpu/memory_bound/parallel.h"
#include "kernels/operands.h"

namespace dstrain::simd {

// The operands of an update that is the same for every element: the weights in f32, changed in place, and their
// 16-bit copy, written unless it is null. 16-bit weights that are their own masters have a null `master` and are `copy`,
// changed in place.
struct UpdateOperands {
  const void* grad;  // or the direction that another kernel made of it
  DType grad_type;
  float* master;
  void* copy;
  DType copy_type;
};

// Returns the kernel of an optimizer whose gradient is its operand 0, whose weights are its output 0 and whose 16-bit
// copy, if present, is output `copy`; 16-bit weights have none. prepare(call, operands) returns the function of
// (begin, end) that updates a range of elements. The kernel does nothing if the step is skipped.
template <class Prepare>
std::unique_ptr<Kernel> update_kernel(const KernelSpec& spec, size_t copy, Prepare prepare) {
  const bool own_masters = spec.out[0].dtype != DType::f32;
  if (own_masters) copy = 0;
  return kernel_of([prepare = std::move(prepare), copy, own_masters, threads = spec.threads,
                    n = elements(spec.in[0]), grad_type = spec.in[0].dtype,
                    copy_type = present(spec.out, copy) ? spec.out[copy].dtype
                                                        : DType::f32](const KernelCall& call) {
    if (call.state->skip) return;
    const UpdateOperands operands{data(call.in, 0), grad_type,
                                  own_masters ? nullptr : data<float>(call.out, 0),
                                  data(call.out, copy), copy_type};
    parallel_ranges(threads, n, kFlatGrain, prepare(call, operands));
  });
}

}  // namespace dstrain::simd
