#include "runtime/core/isa/isa.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};

#if defined(__x86_64__)
// Linux grants the tile registers on request only.
bool request_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Features that __builtin_cpu_supports does not know in every compiler.
struct Cpuid {
  bool f16c = false, avx512_bf16 = false, amx_tile = false, amx_bf16 = false;
};

Cpuid read_cpuid() {
  constexpr unsigned kF16c = 1u << 29, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  constexpr unsigned kAvx512Bf16 = 1u << 5;
  Cpuid found;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) found.f16c = c & kF16c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    found.amx_bf16 = d & kAmxBf16;
    found.amx_tile = d & kAmxTile;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) found.avx512_bf16 = a & kAvx512Bf16;
  return found;
}

Isa offered() {
  __builtin_cpu_init();
  const Cpuid cpuid = read_cpuid();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2") || !cpuid.f16c)
    return Isa::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    return Isa::avx2;
  if (!cpuid.avx512_bf16) return Isa::avx512;
  if (!cpuid.amx_tile || !cpuid.amx_bf16 || !request_tiles()) return Isa::avx512_bf16;
  return Isa::amx;
}
Vectors vectors_of_baseline() {
  if (!__builtin_cpu_supports("ssse3")) return Vectors::base;
  const bool sse4 = __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
                    __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
  return sse4 ? Vectors::sse4 : Vectors::ssse3;
}
#else
Isa offered() {
  return Isa::baseline;
}

Vectors vectors_of_baseline() {
  return Vectors::base;
}
#endif

}  // namespace

std::string_view name_of(Isa isa) {
  return kNames[static_cast<size_t>(isa)];
}

Isa isa_named(std::string_view name) {
  const auto* at = std::find(std::begin(kNames), std::end(kNames), name);
  if (at == std::end(kNames))
    fail_user("DSTRAIN_MAX_ISA is \"{}\"; expected one of baseline, avx2, avx512, avx512_bf16, amx",
              name);
  return static_cast<Isa>(at - std::begin(kNames));
}

Isa max_isa() {
  static const Isa isa = [] {
    const char* limit = std::getenv("DSTRAIN_MAX_ISA");
    return std::min(offered(), limit && *limit ? isa_named(limit) : Isa::amx);
  }();
  return isa;
}

Vectors widest_vectors() {
  static const Vectors vectors = max_isa() >= Isa::avx512 ? Vectors::avx512
                                 : max_isa() >= Isa::avx2 ? Vectors::avx2
                                                          : vectors_of_baseline();
  return vectors;
}

}  // namespace dstrain
