// The instruction sets that kernels choose from. This file alone decides which one: plans, which size workspaces and
// packed weights by it, and kernels ask max_isa() or, through best_variant.h, widest_vectors(). So DSTRAIN_MAX_ISA=avx2
// limits all of them. No kernel may ask a library, whose answer can change within a process.
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

// The vectors that code compiled by Highway may use. Processors below AVX2 differ in what they have.
enum class Vectors : uint8_t { base, ssse3, sse4, avx2, avx512 };

// Returns the widest vectors of this processor that max_isa() allows.
Vectors widest_vectors();

}  // namespace dstrain
