// contract as products that a device's library has: linear, linear_input_grad or linear_weight_grad, for each matrix of the
// batch. An operand whose matrices are not stored as the product reads them is copied first.
#pragma once

#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Return the scratch memory, and the kernel, of a contract. `library` makes the kernels of its parts; it may go before the
// kernel does. `at_once`: how many products the host may compute at a time, each on one thread; 0 where a device computes
// them in order.
int64_t contraction_workspace_bytes(const KernelLibrary& library, const KernelSpec& spec,
                                    int at_once);
std::unique_ptr<Kernel> make_contraction(const KernelLibrary& library, const KernelSpec& spec,
                                         int at_once);

}  // namespace dstrain
