#include "runtime/core/isa.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512", "amx"};

#if defined(__x86_64__)
// Linux hands out the tile registers on request only.
bool request_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa offered() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("f16c"))
    return Isa::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    return Isa::avx2;
  if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16") ||
      !request_tiles())
    return Isa::avx512;
  return Isa::amx;
}
#else
Isa offered() {
  return Isa::baseline;
}
#endif

}  // namespace

std::string_view name_of(Isa isa) {
  return kNames[static_cast<size_t>(isa)];
}

Isa isa_named(std::string_view name) {
  const auto* at = std::find(std::begin(kNames), std::end(kNames), name);
  if (at == std::end(kNames))
    fail_user("DSTRAIN_MAX_ISA is \"{}\"; expected one of baseline, avx2, avx512, amx", name);
  return static_cast<Isa>(at - std::begin(kNames));
}

Isa max_isa() {
  static const Isa isa = [] {
    const char* limit = std::getenv("DSTRAIN_MAX_ISA");
    return std::min(offered(), limit && *limit ? isa_named(limit) : Isa::amx);
  }();
  return isa;
}

}  // namespace dstrain
