// The instruction sets that kernels choose from. Every kernel family asks max_isa(), so that
// DSTRAIN_MAX_ISA=avx2 limits all of them; libraries have variables of their own.
#pragma once

#include <cstdint>
#include <string_view>

namespace dstrain {

// Levels of instruction sets; each includes the ones before it. avx2: AVX2 with FMA and F16C; avx512: F, BW,
// CD, DQ and VL; avx512_bf16: dot products of bf16 pairs; amx: bf16 tiles, permitted by the operating
// system.
enum class Isa : uint8_t { baseline, avx2, avx512, avx512_bf16, amx };

std::string_view name_of(Isa isa);  // as DSTRAIN_MAX_ISA takes it: "avx512_bf16"

// Returns the level of that name. Throws UserError, which lists the names, if there is none.
Isa isa_named(std::string_view name);

// Returns the processor's level, limited by the environment variable DSTRAIN_MAX_ISA, which is read once.
// Throws UserError if its value is not a level.
Isa max_isa();

}  // namespace dstrain
