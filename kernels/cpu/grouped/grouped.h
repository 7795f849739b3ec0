// The products of the rows of experts on the CPU: grouped_linear, grouped_input_grad and grouped_weight_grad. Each expert's is a
// product of kernels/cpu/products, whose numbers of rows are known when the step runs.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Returns the bytes of scratch memory, however the rows are divided among the experts.
int64_t grouped_workspace_bytes(const KernelSpec& spec);

// Returns the kernel of one of the three ops. Throws InternalError for other ops.
std::unique_ptr<Kernel> make_grouped(const KernelSpec& spec);

}  // namespace dstrain
