#include "kernels/cpu/products/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

ProductIsa limit() {
  const char* value = std::getenv("DSTRAIN_MAX_ISA");
  if (value == nullptr || std::string_view(value).empty()) return ProductIsa::amx;
  const std::string_view name = value;
  if (name == "avx2") return ProductIsa::avx2;
  if (name == "avx512") return ProductIsa::avx512;
  if (name == "amx") return ProductIsa::amx;
  fail_user("environment variable DSTRAIN_MAX_ISA: \"{}\"; expected avx2, avx512 or amx", name);
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// Linux gives a process the tile registers only when it asks (arch_prctl(2)).
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_amx() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & kAmxBf16) != 0 && (d & kAmxTile) != 0 && may_use_tiles();
}

ProductIsa detect() {
  const ProductIsa most = limit();
  if (most == ProductIsa::avx2 || !has_avx512()) return ProductIsa::avx2;
  return most == ProductIsa::amx && has_amx() ? ProductIsa::amx : ProductIsa::avx512;
}

}  // namespace

ProductIsa product_isa() {
  static const ProductIsa isa = detect();
  return isa;
}

}  // namespace dstrain
