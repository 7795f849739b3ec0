// The operations of plans that generate text (runtime/ir/ops/decode.h) on the CPU.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// Returns the bytes of scratch memory that an operation of the family `decode` needs.
int64_t decode_workspace_bytes(const KernelSpec& spec);
// Returns its kernel; null for an operation of another family.
std::unique_ptr<Kernel> make_decode(const KernelSpec& spec);

namespace simd {

std::unique_ptr<Kernel> make_row_linear(const KernelSpec& spec);
std::unique_ptr<Kernel> make_grouped_row_linear(const KernelSpec& spec);
std::unique_ptr<Kernel> make_cached_attention(const KernelSpec& spec);
int64_t cached_attention_workspace(const KernelSpec& spec);

}  // namespace simd
}  // namespace dstrain
