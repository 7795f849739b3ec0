#include "kernels/cpu/products/dnnl_library.h"

#include <cpuid.h>

#include <cstdlib>

#include "runtime/core/error.h"
#include "runtime/core/isa.h"

namespace dstrain {
namespace {

// oneDNN 2.6 takes the tile palette from this leaf and dies of SIGILL in its AMX code under
// hypervisors that hide it.
bool tells_tile_palettes() {
  constexpr unsigned kTileLeaf = 0x1d;
  unsigned palettes = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(kTileLeaf, 0, &palettes, &b, &c, &d) != 0 && palettes != 0;
}

bool set_limit() {
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) return true;
  if (max_isa() == Isa::baseline) {
    check_dnnl(dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41), "limiting it to SSE4.1");
  } else if (max_isa() == Isa::avx2) {
    check_dnnl(dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2), "limiting it to AVX2");
  } else if (max_isa() == Isa::avx512) {
    check_dnnl(dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core), "limiting it to AVX-512");
  } else if (max_isa() == Isa::avx512_bf16 || !tells_tile_palettes()) {
    check_dnnl(dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16), "limiting it to AVX512_BF16");
  }
  return true;
}

}  // namespace

void limit_dnnl_isa() {
  static const bool limited = set_limit();
  static_cast<void>(limited);
}

void check_dnnl(dnnl_status_t status, const char* what) {
  check(status == dnnl_success, "oneDNN: {} failed with status {}", what, static_cast<int>(status));
}

}  // namespace dstrain
