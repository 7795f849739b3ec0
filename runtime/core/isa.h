// The instruction sets that our kernels choose from, and the limit a user can put on them.
// Stands on nothing but the processor. Invariant: one process has one answer; every kernel family
// asks here, so DSTRAIN_MAX_ISA=avx2 holds for all of them (libraries have variables of their own).
#pragma once

#include <cstdint>
#include <string_view>

namespace dstrain {

// Each level includes the ones before it. avx2: AVX2 with FMA and F16C; avx512: F, BW, CD, DQ and
// VL; avx512_bf16: dot products of bf16 pairs; amx: bf16 tiles that the operating system lets this
// process use.
enum class Isa : uint8_t { baseline, avx2, avx512, avx512_bf16, amx };

std::string_view name_of(Isa isa);  // as DSTRAIN_MAX_ISA takes it: "avx512_bf16"

// The name's level; throws UserError, listing the names, where there is none.
Isa isa_named(std::string_view name);

// What this processor offers, not above the level in the environment variable DSTRAIN_MAX_ISA.
// Reads the variable once. Throws UserError where its value is no level.
Isa max_isa();

}  // namespace dstrain
